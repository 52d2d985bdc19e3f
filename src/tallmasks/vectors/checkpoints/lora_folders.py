"""PEFT LoRA folders as checkpoints, theta_0 + scale * (B A) (Hu et al. 2022; rsLoRA: Kalajdzievski 2023). The product
is computed on demand. A difference is float32(scale) times the sum over r of B A, in float32 and in the order of r;
theta_t - theta_0 would be rounded twice."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, name_some, short
from tallmasks.io.plain_files import read_plain_json, reading
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.float_bytes import narrowed
from tallmasks.vectors.checkpoints.known_tensors import KnownTensor, known_tensors, library_advice
from tallmasks.vectors.checkpoints.weight_files import open_weight_files
from tallmasks.vectors.kernels import read_only

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
MERGE_IT = "Merge it with peft's merge_and_unload, save the model, and give that folder"
PREFIX = "base_model.model."
_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<factor>[AB])(?:\.weight)?")
_INSIDE = re.compile(r"\.\d+\.")  # in names of tensors inside a block, which are never tied
# Options with which the model is not just its weights plus B A.
_OTHER_KINDS = (
    "use_dora", "use_qalora", "use_bdlora", "lora_bias", "layer_replication", "target_parameters",
    "trainable_token_indices", "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config",
)  # fmt: skip
# Values of `init_lora_weights` that leave the base unchanged, in lower case; peft ignores case in most.
_HARMLESS_STARTS = ("true", "false", "none", "gaussian", "eva", "orthogonal", "mica")
# Fields of the adapter's configuration that are read here.
_TYPES = {
    "rank_pattern": dict, "alpha_pattern": dict, "modules_to_save": list, "use_rslora": bool, "fan_in_fan_out": bool,
}  # fmt: skip


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
    replaced: Mapping[str, str]  # names in the adapter of tensors that it replaces

    def raw_bytes(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        name = self.aliases.get(name, name)
        if name in self.products:
            return narrowed(self.piece(name, start, stop), self.info(name).dtype, f"{self.title}: tensor {name}")
        return self._before(name).raw_bytes(self.replaced.get(name, name), start, stop)

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        name = self.aliases.get(name, name)
        values = self._before(name).piece(self.replaced.get(name, name), start, stop)
        return values + self.products[name].piece(start, stop) if name in self.products else values

    def difference(self, base: Checkpoint, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Exactly the delta for its own base; the difference of the values for another."""
        name = self.aliases.get(name, name)
        if name not in self.products or base.files != self.base.files:
            return super().difference(base, name, start, stop)
        delta = self.products[name].piece(start, stop)
        if name in self.replaced:
            delta += self.adapter.piece(self.replaced[name], start, stop) - base.piece(name, start, stop)
        return delta

    def roundoff(self, name: str) -> float:
        """0 for tensors with a delta, because theta_0 + delta is never rounded."""
        name = self.aliases.get(name, name)
        return 0.0 if name in self.products else super().roundoff(name)

    def same(self, base: Checkpoint, name: str, other: str | None = None) -> bool:
        name = self.aliases.get(name, name)
        if base.files != self.base.files or other is not None:
            return super().same(base, name, other)
        return name not in self.products and (name not in self.replaced or super().same(base, name))

    def _before(self, name: str) -> Checkpoint:
        return self.adapter if name in self.replaced else self.base


def open_lora(folder: Path, file: str | None, base: Checkpoint | None, attributes: Mapping[str, Any]) -> Checkpoint:
    """Open a PEFT folder with the weights ``file`` on its ``base``; A and B are read into memory.

    Raises TallmasksError if the base is missing or does not fit, the adapter is not a LoRA on matrices, a file is
    missing or damaged, or a changed tensor is tied, or may be.
    """
    title = str(attributes["title"])
    config = _read_config(folder / ADAPTER_CONFIG, title)
    if file is None:
        raise TallmasksError(f"{title}: {ADAPTER_FILES[0]} is missing. Download the folder again")
    if base is None:
        named = config.get("base_model_name_or_path")
        raise TallmasksError(
            f"{title}: found a LoRA without its base model{f' {short(named)}' if named else ''}. Give the base too. Or:"
            f" {MERGE_IT}"
        )
    adapter = open_weight_files({file: folder / file}, title=title, origin=attributes["origin"])
    factors, others = _sorted_out(adapter)
    modules = {f"{module}.weight": module for module in factors}
    targets = dict.fromkeys([*modules, *others])
    embeddings = {name for name, module in modules.items() if "embedding" in factors[module]}
    is_plain = not (others or embeddings) and all(name in base.names and _INSIDE.search(name) for name in targets)
    known = {} if is_plain else known_tensors(base.names | targets.keys(), base)
    kept = [f"{name}." for name in ("modules_to_save", *(config.get("modules_to_save") or ()))]
    copies = {name for name, stored in others.items() if any(module in stored for module in kept)}
    names = _names_in_base(targets, copies, known, base, title)
    for target, name in names.items():
        stored = others.get(target)
        is_table = target in embeddings or (stored and adapter.info(stored).shape == base.tensors.get(name, (0, 0))[1])
        _refuse_tied(name, bool(is_table), known, base, title)
    replaced = {names[target]: stored for target, stored in others.items()}
    # peft also stores the base's values of an embedding that has factors
    copied = [name for name, stored in replaced.items() if name in base.names and adapter.same(base, stored, name)]
    replaced = {name: stored for name, stored in replaced.items() if name not in copied}
    products: dict[str, _Product] = {}
    for target, module in modules.items():
        scale = _scale(config, module, factors[module], adapter)
        product = _product(factors[module], scale, names[target], base, adapter, config)
        if product.left.any() and product.right.any():  # untrained, B is zero
            products[names[target]] = product
    tensors = {**base.tensors, **{name: adapter.tensors[stored] for name, stored in replaced.items()}}
    return LoraCheckpoint(
        **attributes,
        files={name: folder / name for name in (file, ADAPTER_CONFIG)},
        tensors=dict(sorted(tensors.items())),
        aliases=base.aliases,
        file_of=base.file_of,
        base=base,
        adapter=replace(adapter, title=f"{title}'s {file}"),
        products=products,
        replaced=replaced,
    )


def _read_config(path: Path, title: str) -> dict[str, Any]:
    if not path.exists():
        raise TallmasksError(f"{title}: {ADAPTER_CONFIG} is missing. Copy it to the adapter's folder")
    with reading(path, "a configuration that peft wrote"):
        config = read_plain_json(path)
    if not isinstance(config, dict):
        raise TallmasksError(f"{path}: not a JSON object; expected a configuration that peft wrote. Copy it again")
    if (kind := config.get("peft_type")) != "LORA":
        raise TallmasksError(
            f"{title}: found an adapter with peft_type {short(kind)}; expected 'LORA'. If it changes weights:"
            f" {MERGE_IT}. Soft prompts cannot be merged"
        )
    if odd := next((option for option in _OTHER_KINDS if config.get(option)), None):
        raise TallmasksError(
            f"{title}: found {odd}, which changes the model by more than B A; expected a plain LoRA. {MERGE_IT}"
        )
    if str(start := config.get("init_lora_weights")).lower() not in _HARMLESS_STARTS:
        raise TallmasksError(
            f"{title}: init_lora_weights is {short(start)}; expected one that does not change the base's weights:"
            f" {', '.join(_HARMLESS_STARTS)}. {MERGE_IT}"
        )
    for option, kind in _TYPES.items():
        if not isinstance(config.get(option), kind | NoneType):
            raise TallmasksError(
                f"{path}: {option} is {short(config[option])}; expected {kind.__name__}. Copy it again"
            )
    return config


def _sorted_out(adapter: Checkpoint) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The stored names of A and B by module, plus "embedding" for embeddings; and the other tensors by name."""
    title = adapter.title
    factors: dict[str, dict[str, str]] = {}
    others: dict[str, str] = {}
    for stored in adapter.names:
        if ".original_module." in stored:  # the untrained original of a module in modules_to_save
            continue
        name = stored.removeprefix(PREFIX)
        names, key = others, name.replace(".modules_to_save.", ".").replace(".base_layer.", ".")
        if match := _FACTOR.fullmatch(name):
            names, key = factors.setdefault(match["module"], {}), match["factor"]
            if match["embedding"]:
                names["embedding"] = stored
        if not stored.startswith(PREFIX) or (match is None and ".lora_" in name):
            raise TallmasksError(
                f"{title}: found the tensor {stored}; expected names as peft's save_pretrained writes them, such as"
                f" {PREFIX}MODULE.lora_A.weight. {MERGE_IT}"
            )
        if (other := names.setdefault(key, stored)) != stored and not adapter.same(adapter, other, stored):
            raise TallmasksError(f"{title}: {other} and {stored} are different values of one tensor. {MERGE_IT}")
    half = [module for module, pair in factors.items() if not {"A", "B"} <= pair.keys()]
    if half or not adapter.tensors:
        of = f" of {name_some(half)}" if half else ""
        raise TallmasksError(f"{title}: lora_A or lora_B{of} is missing; expected both. Download the folder again")
    return factors, others


def _names_in_base(
    targets: Collection[str], copies: Collection[str], known: Mapping[str, KnownTensor], base: Checkpoint, title: str
) -> dict[str, str]:
    """The base's tensor of each target: of the same name, or, as transformers says, of another. Heads keep theirs."""
    by_identity: dict[str, set[str]] = {}
    for name in base.names & known.keys():
        by_identity.setdefault(known[name].identity, set()).add(base.aliases.get(name, name))
    names: dict[str, str] = {}
    absent = []
    for target in targets:
        fitting = {base.aliases.get(target, target)} if target in base.names else set()
        if not fitting and target in known:
            fitting = by_identity.get(known[target].identity, set())
        if len(fitting) > 1 or (fitting and not fitting.isdisjoint(names.values())):
            raise TallmasksError(
                f"{title}: {target} is {name_some(sorted(fitting))} in {base.title}; expected one tensor there,"
                f" and one name for it in the adapter. {MERGE_IT}"
            )
        if not fitting and target not in copies:
            absent.append(target)
        names[target] = min(fitting, default=target)
    if absent:
        raise TallmasksError(
            f"{title}: it changes {name_some(absent)}, which {base.title} does not have. Give the base that it was"
            f" trained on{library_advice(base)}. If this is that base: {MERGE_IT}"
        )
    return names


def _refuse_tied(name: str, is_table: bool, known: Mapping[str, KnownTensor], base: Checkpoint, title: str) -> None:
    """Raise TallmasksError if a changed tensor is tied. Embeddings and replaced matrices (``is_table``) must not be."""
    if name in base.aliases.values() or (name in known and known[name].is_tied):
        tied = "is tied to another tensor"
    elif is_table and name not in known and len(base.info(name).shape) == 2:
        tied = f"may be tied to another tensor: only the config.json of transformers tells{library_advice(base)}"
    else:
        return
    raise TallmasksError(f"{title}: it changes {name}, which in {base.title} {tied}. {MERGE_IT}")


def _scale(config: Mapping[str, Any], module: str, pair: Mapping[str, str], adapter: Checkpoint) -> float:
    """alpha / r, or alpha / sqrt(r) with rank-stabilised scaling; patterns as in peft."""
    rank = _by_pattern(config, "rank_pattern", module, config.get("r"))
    alpha = _by_pattern(config, "alpha_pattern", module, config.get("lora_alpha"))
    stored = adapter.tensors[pair["A"]].shape[:1]
    if stored != (rank,) or not rank or not isinstance(alpha, int | float) or not abs(alpha) < 2**64:
        raise TallmasksError(
            f"{adapter.title}: {pair['A']} has rank {list(stored)}, but {ADAPTER_CONFIG} has rank {short(rank)} and"
            f" lora_alpha {short(alpha)} for it. Copy the folder again"
        )
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _by_pattern(config: Mapping[str, Any], option: str, module: str, default: Any) -> Any:
    """The value of the first pattern that matches the module's name, or its end after a dot, as in peft."""
    for pattern, value in (config.get(option) or {}).items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error as error:
            raise TallmasksError(f"{ADAPTER_CONFIG}: {option} {short(pattern)}: {error}. Copy it again") from None
    return default


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
    known = known_tensors(base.names, base)
    return known[name].layer == "Conv1D" if name in known else None
