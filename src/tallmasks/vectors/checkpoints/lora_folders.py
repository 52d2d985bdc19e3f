"""PEFT LoRA folders as checkpoints, theta_0 + scale * (B A) (Hu et al. 2022; rsLoRA: Kalajdzievski 2023). The product
is computed on demand. A difference is float32(scale) times the sum over r of B A, in float32 and in the order of r;
theta_t - theta_0 would be rounded twice."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, short, warn
from tallmasks.io.plain_files import read_plain_json
from tallmasks.io.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.float_bytes import narrowed
from tallmasks.vectors.checkpoints.inputs_first import inputs_first
from tallmasks.vectors.checkpoints.library_models import library_advice, library_model
from tallmasks.vectors.checkpoints.loaded_names import modern
from tallmasks.vectors.checkpoints.lora_ties import (
    MERGE_IT,
    refuse_unknown_ties,
    tied_tensors,
    without_second_names,
)
from tallmasks.vectors.checkpoints.module_patterns import ModulePatterns
from tallmasks.vectors.checkpoints.weight_files import open_weight_files
from tallmasks.vectors.kernels import read_only

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX = "base_model.model."
_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<factor>[AB])(?:\.weight)?")
_INSIDE = re.compile(r"\.\d+\.")  # in names of tensors inside a block
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


def open_lora(folder: Path, adapters: Sequence[str], base: Checkpoint | None, facts: Mapping[str, Any]) -> Checkpoint:
    """Open a PEFT folder on its ``base``; A and B are read into memory. ``adapters``: its weight files, best first.

    Raises TallmasksError if the base is missing or does not fit, the adapter is not a LoRA on matrices, a file is
    missing or damaged, or one of two tied tensors is replaced.
    """
    title = str(facts["title"])
    config = _read_config(folder / ADAPTER_CONFIG, title)
    if not adapters:
        raise TallmasksError(f"{title}: {ADAPTER_FILES[0]} is missing beside {ADAPTER_CONFIG}. Download it again")
    if base is None:
        named = config.get("base_model_name_or_path")
        raise TallmasksError(
            f"{title}: found a LoRA{f' of {named}' if named else ''}; expected the base model with it. Give the base,"
            f" or {MERGE_IT[0].lower()}{MERGE_IT[1:]}"
        )
    weights = {adapters[0]: folder / adapters[0]}
    adapter = open_weight_files(weights, title=title, origin=facts["origin"])
    factors, others = _sorted_out(adapter, title)
    copied = [f"{name}." for name in ("modules_to_save", *(config.get("modules_to_save") or ()))]
    copies = {name for name, stored in others.items() if any(part in stored for part in copied)}
    # all other adapted modules are linear layers, which are never tied
    may_be_tied = [*others, *(f"{module}.weight" for module, pair in factors.items() if "embedding" in pair)]
    model = library_model(base) if may_be_tied else None
    both_trained = without_second_names(factors, others, model, adapter, title, base) if model else set()
    copies &= others.keys()
    targets = list(dict.fromkeys([*(f"{module}.weight" for module in factors), *others]))
    renamed = _fitted(targets, copies, base, title)
    whole = {renamed[name]: stored for name, stored in others.items()}
    refuse_unknown_ties(
        {renamed[name]: others.get(name) for name in may_be_tied if name in renamed}, model, adapter, base
    )
    # peft's `ensure_weight_tying` is not needed here: if it ties, both names are in the file
    tied = tied_tensors(base, model) - {renamed[name] for name in both_trained}
    if apart := sorted(tied & {renamed[name] for name in copies}):
        raise TallmasksError(
            f"{title}: modules_to_save trained a copy of {name_some(apart)}; {base.title} ties that to another tensor,"
            " which peft leaves as it was. Save the base with a head of its own (tie_word_embeddings: false), and give"
            " that as the base"
        )
    products = {}
    for module, pair in factors.items():
        name = renamed[f"{module}.weight"]
        if name in tied:
            warn(
                f"{title}: {name} is tied to another tensor of {base.title}, and both change, as by peft's"
                " merge_and_unload; the adapter on the live model changes one"
            )
        products[name] = _product(pair, _scale(config, module, pair, adapter, title), name, base, adapter, config)
    tensors = {**base.tensors, **{name: adapter.tensors[stored] for name, stored in whole.items()}}
    return LoraCheckpoint(
        **{**facts, "files": {**weights, ADAPTER_CONFIG: folder / ADAPTER_CONFIG}},
        tensors=dict(sorted(tensors.items())),
        aliases=base.aliases,
        file_of=base.file_of,
        base=base,
        adapter=replace(adapter, title=f"{title}'s {adapters[0]}"),
        products=products,
        whole=whole,
    )


def _read_config(path: Path, title: str) -> dict[str, Any]:
    try:
        config = read_plain_json(path)
    except FileNotFoundError:
        raise TallmasksError(f"{title}: {ADAPTER_CONFIG} is missing beside the adapter; copy it there") from None
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict):
        raise TallmasksError(f"{path}: not a JSON object; expected a configuration as peft writes it. Copy it again")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise TallmasksError(f"{title}: an adapter of the kind {short(kind)}; only LORA can be read. {MERGE_IT}")
    if odd := next((option for option in _OTHER_KINDS if config.get(option)), None):
        raise TallmasksError(f"{title}: a LoRA with {odd}, whose weights are more than theta_0 + B A. {MERGE_IT}")
    if (start := config.get("init_lora_weights")) not in _HARMLESS_STARTS:
        raise TallmasksError(
            f"{title}: a LoRA begun with {short(start)}, which changes the base's weights too. {MERGE_IT}"
        )
    for option in ("use_rslora", "fan_in_fan_out"):
        if not isinstance(config.get(option), bool | None):
            raise TallmasksError(f"{path}: {option} is {short(config[option])}; expected true or false")
    for option in ("rank_pattern", "alpha_pattern"):
        patterns = config.get(option) or {}
        try:
            config[option] = ModulePatterns(patterns)
        except (ValueError, AttributeError) as error:
            raise TallmasksError(
                f"{path}: {option} has {error}; expected numbers by names of modules, with . .* \\d+ [0-9]+ and | at"
                f" most. {MERGE_IT}"
            ) from None
    return config


def _sorted_out(adapter: Checkpoint, title: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The stored names of A and B by module, plus "embedding" for embeddings; and the other tensors by name."""
    factors: dict[str, dict[str, str]] = {}
    others: dict[str, str] = {}
    for stored in adapter.names:
        if ".original_module." in stored:  # the untrained original of a module in modules_to_save
            continue
        name = stored.removeprefix(_PREFIX)
        if not stored.startswith(_PREFIX):
            raise TallmasksError(
                f"{title}: tensor {stored} is not of a LoRA as peft writes it; expected names beginning with"
                f" {_PREFIX}. {MERGE_IT}"
            )
        names, key = others, name.replace(".modules_to_save.", ".").replace(".base_layer.", ".")
        if match := _FACTOR.fullmatch(name):
            names, key = factors.setdefault(match["module"], {}), match["factor"]
            if match["embedding"]:
                names["embedding"] = stored
        elif ".lora_" in name:
            raise TallmasksError(f"{title}: tensor {stored} is of another kind of LoRA. {MERGE_IT}")
        if (other := names.setdefault(key, stored)) != stored and not adapter.same(adapter, other, stored):
            raise TallmasksError(f"{title}: {other} and {stored} are one tensor twice. {MERGE_IT}")
    half = [module for module, pair in factors.items() if not {"A", "B"} <= pair.keys()]
    if half or not adapter.tensors:
        of = f" of {name_some(half)}" if half else ""
        raise TallmasksError(f"{title}: lora_A or lora_B{of} is missing; expected both. Download it again")
    return factors, others


def _fitted(targets: Sequence[str], copies: Collection[str], base: Checkpoint, title: str) -> dict[str, str]:
    """The base's name of each target, allowing one prefix more or less for all, or transformers' renaming. Copied
    modules that the base lacks (heads) keep their names."""
    absent = dict(zip(targets, targets, strict=True))
    with_heads: list[dict[str, str]] = []
    for ours, theirs in _readings(targets, base):
        guesses = [dict(zip(targets, keys, strict=True)) for keys in _guesses(list(theirs.values()), ours)]
        for guess in guesses:
            guess.update({name: name for name in copies if guess[name] not in ours})
        lacking = [
            {name: key for name, key in one.items() if key not in ours and name not in copies} for one in guesses
        ]
        absent = min([absent, *lacking], key=len)
        fits = [not lacks and len(set(one.values())) == len(one) for one, lacks in zip(guesses, lacking, strict=True)]
        fitting = [{name: ours.get(key, key) for name, key in one.items()} for one in compress(guesses, fits)]
        if len(fitting) > 1 and not fits[0]:
            raise TallmasksError(
                f"{title}: {targets[0]} may be {name_some([one[targets[0]] for one in fitting])} of {base.title};"
                f" expected one that fits. {MERGE_IT}"
            )
        with_heads += fitting[:1]
        if fitting and not any(_INSIDE.search(name) for name in copies if fitting[0][name] not in base.tensors):
            break  # otherwise a seeming head can be a tensor of a block under another name
    if with_heads:
        return max(with_heads, key=lambda one: len(base.tensors.keys() & one.values()))
    tied = [name for name, key in absent.items() if key in base.aliases]
    raise TallmasksError(
        f"{title}: it changes {name_some(tied or sorted(absent))}, "
        + (f"tied to another tensor in {base.title}" if tied else f"which {base.title} has not")
        + f"; expected tensors of its own base. Give the base that it was trained on{library_advice(base)}."
        f" Where this is it: {MERGE_IT}"
    )


def _readings(targets: Sequence[str], base: Checkpoint) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The base's tensors by key, and the key of each target: its modern name, or its name as transformers loads it."""
    yield {modern(name): name for name in base.tensors}, {name: modern(name) for name in targets}
    if (model := library_model(base)) is not None:
        ours, theirs = model.names(base.tensors), model.names(targets)
        yield {key: name for name, key in ours.items()}, {name: theirs.get(name, name) for name in targets}


def _guesses(targets: Sequence[str], names: Collection[str]) -> Iterator[list[str]]:
    yield list(targets)
    parts = targets[0].split(".")
    for count in range(1, len(parts) - 1):
        yield [name.removeprefix(f"{'.'.join(parts[:count])}.") for name in targets]
    for name in names:
        if name.endswith(f".{targets[0]}"):
            yield [name.removesuffix(targets[0]) + target for target in targets]


def _scale(config: Mapping[str, Any], module: str, pair: Mapping[str, str], adapter: Checkpoint, title: str) -> float:
    """alpha / r, or alpha / sqrt(r) with rank-stabilised scaling; patterns as in peft."""
    rank = config["rank_pattern"].value(module, config.get("r"))
    alpha = config["alpha_pattern"].value(module, config.get("lora_alpha"))
    stored = adapter.tensors[pair["A"]].shape[:1]
    if stored != (rank,) or not rank:
        raise TallmasksError(
            f"{title}: {pair['A']} has rank {list(stored)}, and {ADAPTER_CONFIG} says {rank!r}; expected the same. Copy"
            " the folder again"
        )
    if not isinstance(alpha, int | float):
        raise TallmasksError(f"{title}: lora_alpha of {module} is {alpha!r}; expected a number in {ADAPTER_CONFIG}")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _product(
    pair: Mapping[str, str], scale: float, name: str, base: Checkpoint, adapter: Checkpoint, config: Mapping[str, Any]
) -> _Product:
    """The delta of one tensor, transposed if the base has the inputs first. `fan_in_fan_out` is only that of the last
    module, so the shape decides, or for a square matrix `inputs_first`."""
    a, b = (adapter.float32(pair[factor]) for factor in "AB")
    info = base.tensors[name]
    if a.ndim != 2 or b.ndim != 2 or len(info.shape) != 2:
        raise TallmasksError(f"{adapter.title}: {pair['A']} is of a convolution; only matrices can be read. {MERGE_IT}")
    if "embedding" in pair:
        transposed: bool | None = True
    elif len(set(info.shape)) > 1:
        transposed = info.shape == (a.shape[1], b.shape[0])
    else:
        transposed = inputs_first(name, base, bool(config.get("fan_in_fan_out")))
    if transposed is None:
        raise TallmasksError(
            f"{adapter.title}: {name} is square, and nothing says whether {base.title} has its inputs or outputs first"
            f" (transformers' Conv1D, or nn.Linear){library_advice(base)}. {MERGE_IT}"
        )
    left, right = (a.T, b.T) if transposed else (b, a)
    if left.shape[1] != right.shape[0] or (left.shape[0], right.shape[1]) != info.shape or not info.is_float:
        shape = f"{left.shape[0]} x {right.shape[1]} (of ranks {left.shape[1]} and {right.shape[0]})"
        raise TallmasksError(
            f"{adapter.title}: the delta of {name} is {shape}, and {base.title} has {list(info.shape)} of {info.dtype};"
            " expected the same shape, of floats. Give the base that it was trained on"
        )
    run = np.ascontiguousarray(right).reshape(-1)
    return _Product(read_only(np.ascontiguousarray(left)), read_only(run), np.float32(scale), right.shape[1])
