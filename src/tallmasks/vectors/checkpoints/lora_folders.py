"""PEFT LoRA folders as checkpoints, theta_0 + scale * (B A) (Hu et al. 2022; rsLoRA: Kalajdzievski 2023). The product
is computed on demand. A difference is float32(scale) times the sum over r of B A, in float32 and in the order of r;
theta_t - theta_0 would be rounded twice."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, short, warn
from tallmasks.io.plain_files import read_plain_json, reading
from tallmasks.io.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.float_bytes import narrowed
from tallmasks.vectors.checkpoints.lora_ties import (
    MERGE_IT,
    UNTIE,
    one_name,
    refuse_unknown_ties,
    without_second_names,
)
from tallmasks.vectors.checkpoints.module_patterns import ModulePatterns
from tallmasks.vectors.checkpoints.transformers_models import library_advice, library_model
from tallmasks.vectors.checkpoints.transformers_names import modern
from tallmasks.vectors.checkpoints.weight_files import open_weight_files
from tallmasks.vectors.kernels import read_only

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX = "base_model.model."
_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<factor>[AB])(?:\.weight)?")
_ADAPTER_NAME = re.compile(r"\.lora_(?:embedding_)?[AB]\.(.+?)(?:\.weight)?$")
_INSIDE = re.compile(r"\.\d+\.")  # in names of tensors inside a block
_PROMPTS = (
    "PROMPT_TUNING",
    "PREFIX_TUNING",
    "P_TUNING",
    "MULTITASK_PROMPT_TUNING",
    "ADAPTION_PROMPT",
    "CPT",
    "CARTRIDGE",
)
# Options with which the model is not just its weights plus B A.
_OTHER_KINDS = (
    "use_dora", "use_qalora", "use_bdlora", "lora_bias", "layer_replication", "target_parameters",
    "trainable_token_indices", "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config",
)  # fmt: skip
_HARMLESS_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # values that leave the base unchanged


@dataclass(frozen=True)
class _Product:
    """The delta of a tensor, scale * (left right), float32: left [rows, r], right [r * columns]."""

    left: NDArray[np.float32]
    right: NDArray[np.float32]
    scale: np.float32
    columns: int

    def piece(self, start: int, stop: int) -> NDArray[np.float32]:
        from tallmasks.vectors.loops import low_rank_product

        out = np.empty(stop - start, np.float32)
        low_rank_product(self.left, self.right, self.scale, start, self.columns, out)
        return out


@dataclass(frozen=True, eq=False, kw_only=True)
class LoraCheckpoint(Checkpoint):
    """A base with a LoRA: some tensors have a delta, some are replaced, the rest are the base's. Tensors with a delta
    have the base's dtype: `stored` rounds theta_0 + delta to it, `piece` does not."""

    base: Checkpoint
    adapter: Checkpoint
    products: Mapping[str, _Product]
    whole: Mapping[str, str]  # replaced tensors, with their names in the adapter

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        name = self.aliases.get(name, name)
        if name in self.products:
            return narrowed(self.piece(name, start, stop), self.info(name).dtype, f"{self.title}: tensor {name}")
        return self._before(name).stored(self.whole.get(name, name), start, stop)

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        name = self.aliases.get(name, name)
        values = self._before(name).piece(self.whole.get(name, name), start, stop)
        return values + self.products[name].piece(start, stop) if name in self.products else values

    def difference(self, base: Checkpoint, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Exactly the delta for its own base; the difference of the values for another."""
        name = self.aliases.get(name, name)
        if name not in self.products or base.files != self.base.files:
            return super().difference(base, name, start, stop)
        delta = self.products[name].piece(start, stop)
        if name in self.whole:
            delta += self.adapter.piece(self.whole[name], start, stop) - base.piece(name, start, stop)
        return delta

    def roundoff(self, name: str) -> float:
        """0 for tensors with a delta, because theta_0 + delta is never rounded."""
        name = self.aliases.get(name, name)
        return 0.0 if name in self.products else super().roundoff(name)

    def same(self, base: Checkpoint, name: str, other: str | None = None) -> bool:
        name = self.aliases.get(name, name)
        if base.files != self.base.files or other is not None:
            return super().same(base, name, other)
        return name not in self.products and (name not in self.whole or super().same(base, name))

    def _before(self, name: str) -> Checkpoint:
        return self.adapter if name in self.whole else self.base


def open_lora(folder: Path, file: str | None, base: Checkpoint | None, attributes: Mapping[str, Any]) -> Checkpoint:
    """Open a PEFT folder with the weights ``file`` on its ``base``; A and B are read into memory.

    Raises TallmasksError if the base is missing or does not fit, the adapter is not a LoRA on matrices, a file is
    missing or damaged, or one of two tied tensors is replaced.
    """
    title = str(attributes["title"])
    config = _read_config(folder / ADAPTER_CONFIG, title)
    if file is None:
        raise TallmasksError(f"{title}: {ADAPTER_FILES[0]} is missing. Download the folder again")
    if base is None:
        named = config.get("base_model_name_or_path")
        raise TallmasksError(
            f"{title}: found a LoRA without its base model{f' {named}' if named else ''}. Give the base too. Or:"
            f" {MERGE_IT}"
        )
    adapter = open_weight_files({file: folder / file}, title=title, origin=attributes["origin"])
    factors, others = _sorted_out(adapter)
    copied = [f"{name}." for name in ("modules_to_save", *(config.get("modules_to_save") or ()))]
    copies = {name for name, stored in others.items() if any(part in stored for part in copied)}
    targets = [*(f"{module}.weight" for module in factors), *others]
    embeddings = [f"{module}.weight" for module, pair in factors.items() if "embedding" in pair]
    # the linear layers of a block are never tied
    may_be_tied = any(name in others or name in embeddings or not _INSIDE.search(name) for name in targets)
    model = library_model(base) if may_be_tied else None
    names = one_name(base, model)
    renamed = _fitted(list(dict.fromkeys(targets)), copies, names, base, title)
    refuse_unknown_ties({renamed[name]: others.get(name) for name in (*others, *embeddings)}, model, adapter, base)
    by_tensor: dict[str, list[str]] = {}
    for target, name in renamed.items():
        by_tensor.setdefault(name, []).append(target)
    both_trained = without_second_names(factors, others, by_tensor, adapter, base)
    # peft's `ensure_weight_tying` is not needed here: if it ties, both names are in the file
    tied = {one for name, one in names.items() if name != one} - both_trained
    if apart := sorted(tied & {renamed[name] for name in copies}):
        raise TallmasksError(
            f"{title}: modules_to_save trained a copy of {name_some(apart)}, but {base.title} ties that to another"
            f" tensor, which peft does not change. {UNTIE}"
        )
    stored_names: dict[str, list[str]] = {}
    for name in base.tensors:
        stored_names.setdefault(names[name], []).append(name)
    whole = {
        name: stored
        for target, stored in others.items()
        for name in stored_names.get(renamed[target], [renamed[target]])
    }
    products: dict[str, _Product] = {}
    for module, pair in factors.items():
        name = renamed[f"{module}.weight"]
        if name in tied:
            warn(
                f"{name} is tied to another tensor in {base.title}. Both change here, as with peft's merge_and_unload;"
                " peft's unmerged adapter changes only one",
                title,
            )
        product = _product(pair, _scale(config, module, pair, adapter), name, base, adapter, config)
        if product.left.any() and product.right.any():  # untrained, B is zero
            products |= dict.fromkeys(stored_names[name], product)
    tensors = {**base.tensors, **{name: adapter.tensors[stored] for name, stored in whole.items()}}
    return LoraCheckpoint(
        **attributes,
        files={name: folder / name for name in (file, ADAPTER_CONFIG)},
        tensors=dict(sorted(tensors.items())),
        aliases=base.aliases,
        file_of=base.file_of,
        base=base,
        adapter=replace(adapter, title=f"{title}'s {file}"),
        products=products,
        whole=whole,
    )


def _read_config(path: Path, title: str) -> dict[str, Any]:
    if not path.exists():
        raise TallmasksError(f"{title}: {ADAPTER_CONFIG} is missing. Copy it to the adapter's folder")
    with reading(path, "a configuration that peft wrote"):
        config = read_plain_json(path)
    if not isinstance(config, dict):
        raise TallmasksError(f"{path}: not a JSON object; expected a configuration that peft wrote. Copy it again")
    kind = config.get("peft_type")
    if kind in _PROMPTS:
        raise TallmasksError(
            f"{title}: found an adapter with peft_type {short(kind)}, which learns inputs and changes no weights;"
            " expected 'LORA'. It cannot be merged; leave it out"
        )
    if kind != "LORA":
        raise TallmasksError(f"{title}: found an adapter with peft_type {short(kind)}; expected 'LORA'. {MERGE_IT}")
    if odd := next((option for option in _OTHER_KINDS if config.get(option)), None):
        raise TallmasksError(
            f"{title}: found {odd}, which changes the model by more than B A; expected a plain LoRA. {MERGE_IT}"
        )
    if (start := config.get("init_lora_weights")) not in _HARMLESS_STARTS:
        raise TallmasksError(
            f"{title}: init_lora_weights is {short(start)}, which also changes the base's weights. {MERGE_IT}"
        )
    from tallmasks.io.validation import validated  # slow to import, like the next
    from tallmasks.vectors.checkpoints.adapter_fields import AdapterFields

    validated(config, AdapterFields, path)
    for option in ("rank_pattern", "alpha_pattern"):
        patterns = config.get(option) or {}
        try:
            config[option] = ModulePatterns(patterns)
        except (ValueError, AttributeError) as error:
            raise TallmasksError(
                f"{path}: {option} is not supported: {error}; expected a number for each module name, which may contain"
                f" . .* \\d+ [0-9]+ and |. {MERGE_IT}"
            ) from None
    return config


def _sorted_out(adapter: Checkpoint) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The stored names of A and B by module, plus "embedding" for embeddings; and the other tensors by name."""
    title = adapter.title
    factors: dict[str, dict[str, str]] = {}
    others: dict[str, str] = {}
    for stored in adapter.names:
        if ".original_module." in stored:  # the untrained original of a module in modules_to_save
            continue
        name = stored.removeprefix(_PREFIX)
        if not stored.startswith(_PREFIX):
            raise TallmasksError(
                f"{title}: found the tensor {stored}; expected names that begin with {_PREFIX}, as peft writes them."
                f" {MERGE_IT}"
            )
        names, key = others, name.replace(".modules_to_save.", ".").replace(".base_layer.", ".")
        if match := _FACTOR.fullmatch(name):
            names, key = factors.setdefault(match["module"], {}), match["factor"]
            if match["embedding"]:
                names["embedding"] = stored
        elif match := _ADAPTER_NAME.search(name):
            raise TallmasksError(
                f"{title}: found the tensor {stored}, which names the adapter {match[1]}; expected names without it, as"
                " peft's save_pretrained writes them. Save the adapter with it"
            )
        elif ".lora_" in name:
            raise TallmasksError(f"{title}: the tensor {stored} belongs to an unsupported kind of LoRA. {MERGE_IT}")
        if (other := names.setdefault(key, stored)) != stored and not adapter.same(adapter, other, stored):
            raise TallmasksError(f"{title}: {other} and {stored} are different values of one tensor. {MERGE_IT}")
    half = [module for module, pair in factors.items() if not {"A", "B"} <= pair.keys()]
    if half or not adapter.tensors:
        of = f" of {name_some(half)}" if half else ""
        raise TallmasksError(f"{title}: lora_A or lora_B{of} is missing; expected both. Download the folder again")
    return factors, others


def _fitted(
    targets: Sequence[str], copies: Collection[str], names: Mapping[str, str], base: Checkpoint, title: str
) -> dict[str, str]:
    """The base's tensor of each target, allowing one prefix more or less for all, or transformers' renaming. Copied
    modules that the base lacks (heads) keep their names. ``names``: from `one_name`."""
    absent = dict(zip(targets, targets, strict=True))
    with_heads: list[dict[str, str]] = []
    for ours, theirs in _readings(targets, names, base):
        plain = list(theirs.values())
        fitting: list[dict[str, str]] = []
        for keys in _guesses(plain, ours):
            guess = dict(zip(targets, keys, strict=True))
            guess |= {name: name for name in copies if guess[name] not in ours}
            lacking = {name: key for name, key in guess.items() if key not in ours and name not in copies}
            absent = min(absent, lacking, key=len)
            if not lacking and len(set(guess.values())) == len(guess):
                tensors = {name: ours.get(key, key) for name, key in guess.items()}
                fitting += [tensors] if tensors not in fitting else []
                if keys == plain:
                    break
        if len(fitting) > 1:
            raise TallmasksError(
                f"{title}: {targets[0]} matches more than one tensor of {base.title}:"
                f" {name_some([one[targets[0]] for one in fitting])}; expected one match. {MERGE_IT}"
            )
        with_heads += fitting
        if fitting and not any(_INSIDE.search(name) for name in copies if fitting[0][name] not in base.tensors):
            break  # otherwise what looks like a head can be a tensor of a block under another name
    if with_heads:
        return max(with_heads, key=lambda one: len(base.tensors.keys() & one.values()))
    raise TallmasksError(
        f"{title}: it changes {name_some(sorted(absent))}, which {base.title} does not have. Give the base that it was"
        f" trained on{library_advice(base)}. If this is that base: {MERGE_IT}"
    )


def _readings(
    targets: Sequence[str], names: Mapping[str, str], base: Checkpoint
) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The base's tensors by key, and the key of each target: its modern name, or its name as transformers loads it."""
    yield {modern(name): one for name, one in names.items()}, {name: modern(name) for name in targets}
    if (model := library_model(base)) is not None:
        ours, theirs = model.names(names), model.names(targets)
        yield (
            {ours.get(name, name): one for name, one in names.items()},
            {name: theirs.get(name, name) for name in targets},
        )


def _guesses(targets: Sequence[str], names: Collection[str]) -> Iterator[list[str]]:
    yield list(targets)
    parts = targets[0].split(".")
    for count in range(1, len(parts) - 1):
        yield [name.removeprefix(f"{'.'.join(parts[:count])}.") for name in targets]
    for name in names:
        if name.endswith(f".{targets[0]}"):
            yield [name.removesuffix(targets[0]) + target for target in targets]


def _scale(config: Mapping[str, Any], module: str, pair: Mapping[str, str], adapter: Checkpoint) -> float:
    """alpha / r, or alpha / sqrt(r) with rank-stabilised scaling; patterns as in peft."""
    rank = config["rank_pattern"].value(module, config.get("r"))
    alpha = config["alpha_pattern"].value(module, config.get("lora_alpha"))
    stored = adapter.tensors[pair["A"]].shape[:1]
    if stored != (rank,) or not rank:
        raise TallmasksError(
            f"{adapter.title}: {pair['A']} has rank {list(stored)}; expected {rank!r} from {ADAPTER_CONFIG}. Copy the"
            " folder again"
        )
    if not isinstance(alpha, int | float):
        raise TallmasksError(
            f"{adapter.title}: {ADAPTER_CONFIG} has lora_alpha {alpha!r} for {module}; expected a number. Copy the"
            " folder again"
        )
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _product(
    pair: Mapping[str, str], scale: float, name: str, base: Checkpoint, adapter: Checkpoint, config: Mapping[str, Any]
) -> _Product:
    """The delta of one tensor, transposed if the base has the inputs first. `fan_in_fan_out` only describes the last
    module, so the shape decides, or `inputs_first` if the matrix is square."""
    a, b = (adapter.float32(pair[factor]) for factor in "AB")
    info = base.tensors[name]
    if a.ndim != 2 or b.ndim != 2 or len(info.shape) != 2:
        raise TallmasksError(f"{adapter.title}: {pair['A']} belongs to a convolution; expected a matrix. {MERGE_IT}")
    if "embedding" in pair:
        transposed: bool | None = True
    elif len(set(info.shape)) > 1:
        transposed = info.shape == (a.shape[1], b.shape[0])
    else:
        transposed = inputs_first(name, base, bool(config.get("fan_in_fan_out")))
    if transposed is None:
        raise TallmasksError(
            f"{adapter.title}: {name} is square, so its orientation in {base.title} is unknown (inputs first as in"
            f" transformers' Conv1D, or outputs first as in nn.Linear){library_advice(base)}. {MERGE_IT}"
        )
    left, right = (a.T, b.T) if transposed else (b, a)
    if left.shape[1] != right.shape[0] or (left.shape[0], right.shape[1]) != info.shape or not info.is_float:
        shape = f"{left.shape[0]} x {right.shape[1]} (of ranks {left.shape[1]} and {right.shape[0]})"
        raise TallmasksError(
            f"{adapter.title}: the delta of {name} is {shape}; expected the shape of a float tensor. {base.title} has"
            f" {list(info.shape)} of {info.dtype}. Give the base that it was trained on"
        )
    run = np.ascontiguousarray(right).reshape(-1)
    return _Product(read_only(np.ascontiguousarray(left)), read_only(run), np.float32(scale), right.shape[1])


def inputs_first(name: str, base: Checkpoint, flag: bool) -> bool | None:
    """Whether the square weight ``name`` of the base has its inputs first; None if that cannot be determined. ``flag``:
    the adapter's `fan_in_fan_out`; if it is true, some layer has its inputs first.

    Conv1D always has a bias, as long as the outputs, so the non-square layers show whether a model has any Conv1D.
    """
    tensors, module = base.tensors, name.removesuffix(".weight")
    if f"{module}.bias" not in tensors:
        return False
    has_conv1d = False
    for bias, info in tensors.items():
        weight = tensors.get(f"{bias.removesuffix('.bias')}.weight") if bias.endswith(".bias") else None
        if weight is not None and len(weight.shape) == 2 and info.shape == weight.shape[1:] != weight.shape[:1]:
            has_conv1d = True
    if not has_conv1d:
        return None if flag else False
    if (model := library_model(base)) and (own := model.names([name]).get(name)) in model.tensors:
        return own in model.inputs_first
    return None
