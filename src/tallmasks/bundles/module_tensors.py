"""Matches a live module's tensors with a bundle's names, even if a wrapper or transformers renamed or merged them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.bundles.manifest import Manifest
from tallmasks.errors import TallmasksError, name_some
from tallmasks.io.dtypes import FLOATS, torch_codes, torch_dtypes
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.vectors.checkpoints.folders import part_prefix
from tallmasks.vectors.checkpoints.names_of_base import common_prefixes, unwrapped
from tallmasks.vectors.checkpoints.transformers_process import Conversions

Tensors = dict[str, torch.Tensor]


class ModuleTensor(NamedTuple):
    """A tensor of a module, or a view of part of one: its name in the bundle, and its names in the module."""

    name: str
    tensor: torch.Tensor
    names: list[str]

    @property
    def dtype(self) -> str:
        return torch_codes()[self.tensor.dtype]


@dataclass(frozen=True)
class Form:
    """The tensors that a module must have.

    Attributes:
        tensors, aliases: of the model, as in a `Checkpoint`.
        may_differ: tensors that a module may lack or have in another shape: computed tables and heads.
        heads: tensors of the model that only some tasks have.
        extra: tensors that a module may have in addition: heads, and tensors of the base that this model lacks.
    """

    tensors: Mapping[str, TensorInfo]
    aliases: Mapping[str, str]
    may_differ: Set[str]
    heads: Set[str]
    extra: Set[str]


def form_of(manifest: Manifest, task: str | None) -> Form:
    """The form of a task's model, or of the base."""
    model = manifest.model(task or "")
    tensors = {name: TensorInfo(one.dtype, one.shape) for name, one in manifest.tensors.items()}
    missing = {*model.missing}
    tensors = {name: info for name, info in tensors.items() if name not in missing}
    tensors |= {name: TensorInfo(one.dtype, one.shape) for name, one in model.own.items()}
    aliases = {alias: name for alias, name in manifest.aliases.items() if alias not in tensors and name in tensors}
    heads = {name for one in manifest.models.values() for name in one.own}
    may_differ = manifest.may_differ | heads
    if task is None:  # the module may have been built for a task whose model lacks these
        may_differ |= {name for one in manifest.models.values() for name in one.missing}
    return Form(
        tensors, aliases, may_differ, heads & tensors.keys(), heads | (manifest.tensors.keys() - tensors.keys())
    )


def tensor_of(raw: NDArray[np.uint8], info: TensorInfo) -> torch.Tensor:
    """A torch tensor that shares memory with the bytes. Raises TallmasksError if torch lacks the dtype."""
    if info.dtype not in torch_dtypes():
        raise TallmasksError(f"found a tensor of dtype {info.dtype}, which torch cannot hold; use `tallmasks export`")
    # torch cannot view an empty uint8 array in another dtype
    flat = torch.from_numpy(raw) if raw.size else torch.empty(0, dtype=torch.uint8, device="cpu")
    return flat.view(torch_dtypes()[info.dtype]).reshape(info.shape)


def module_tensors(module: torch.nn.Module, form: Form, keep_heads: bool) -> tuple[list[ModuleTensor], tuple[str, ...]]:
    """The parameters and persistent buffers that the model has values for, tied ones once; and the names of the task's
    own tensors that do not fit the module.

    Counters, masks, tables and buffers unknown to the bundle may exist on one side only; so may heads, with
    ``keep_heads``. Raises TallmasksError if other float tensors differ in name, shape or tying, or if the module's
    values are not in memory.
    """
    matched, extra = _matched(module, form)
    tensors = sorted(matched, key=lambda one: one.name)
    left = tuple(sorted(form.heads - {one.name for one in tensors}))
    if (left or extra) and not keep_heads:
        ours = name_some(f"{name} {list(form.tensors[name].shape)}" for name in left) or "none"
        theirs = name_some(f"{name} {list(tensor.shape)}" for name, tensor in extra.items()) or "none"
        raise TallmasksError(
            f"The module and the task's model have different heads. The task's: {ours}; the module's: {theirs}. Build"
            " the module from the task's configuration (`tallmasks export` writes it), or pass keep_heads=True to leave"
            " the module's heads unchanged."
        )
    for name, tensor, _ in tensors:
        is_known = torch_codes().get(tensor.dtype) in (*FLOATS, form.tensors[name].dtype)
        steps = zip(tensor.stride(), tensor.shape, strict=True)
        is_repeated = tensor.numel() > 0 and any(step == 0 and length > 1 for step, length in steps)
        if not is_known or tensor.is_meta or is_repeated:
            raise _not_dense(name, tensor)
    return tensors, left


def _not_dense(name: str, tensor: torch.Tensor) -> TallmasksError:
    return TallmasksError(
        f"The module's tensor {name} is a {type(tensor).__name__}, {tensor.dtype}, {tensor.layout}, on {tensor.device};"
        " expected dense float32, bfloat16, float16 or float64 values in memory. Load the model without quantisation,"
        " sharding, device_map and offloading."
    )


def forget_old_weights(module: torch.nn.Module) -> None:
    """Resets what modules remember of their weights after a forward pass, and would apply to the new ones."""
    for inner in module.modules():
        state = vars(inner)
        if "layers_are_rescaled" in state:  # RWKV: it has divided some weights, and divides them again if this is False
            state["layers_are_rescaled"] = False
        if "attention_bias_cache" in state:  # LeViT, EfficientFormer, TinyViT: computed from the weights
            state["attention_bias_cache"] = {}
        if type(inner).__name__ == "MimiEuclideanCodebook":  # the same
            state["_embed"] = None


def state_for(module: torch.nn.Module, form: Form, weights: Mapping[str, torch.Tensor]) -> Tensors:
    """A bundle's state dict under the module's names, with every tied name.

    Non-float tensors that the bundle's base lacks come from the module, which may otherwise be on the meta device.
    Raises TallmasksError like :func:`module_tensors`.
    """
    (tensors, _), own = _matched(module, form), module.state_dict()
    parts, names = _as_in_files(module, own, form)
    places = dict(_named_tensors(module))
    odd = [name for name in own.keys() & parts.keys() - places.keys() if names.get(name, name) not in weights]
    renamed = [name for name in odd if torch.is_tensor(own[name]) and own[name].is_floating_point()]
    if renamed and places.keys() - own.keys():
        raise TallmasksError(
            f"The module's state dict has {name_some(sorted(renamed))}, which the module and the bundle do not have: a"
            " hook of the module renames its tensors. Load bundle.state_dict(task) without like="
        )
    state = {name: weights.get(names.get(name, name), own[name]) for name in own.keys() & parts.keys()}
    state |= {name: weights[one.name] for one in tensors for name in one.names if name in own}
    for joined in own.keys() - parts.keys():
        state[joined] = torch.empty_like(own[joined], device="cpu")
        for name, part in _parted(module, {joined: state[joined]}).items():
            part.copy_(weights[names[name]])
    return state


def _matched(module: torch.nn.Module, form: Form) -> tuple[list[ModuleTensor], Tensors]:
    """The module's tensors that the model has, and the extra ones by name."""
    own = dict(_named_tensors(module))
    for name, tensor in own.items():
        is_wrapped = hasattr(tensor, "__tensor_flatten__") or torch.nn.parameter.is_lazy(tensor)  # such as DTensor
        if is_wrapped or tensor.layout != torch.strided:
            raise _not_dense(name, tensor)
    may_differ = form.may_differ
    parts, theirs = _as_in_files(module, own, form)
    tied: dict[tuple, list[str]] = {}
    for name, tensor in parts.items():
        tied.setdefault(_identity(tensor), []).append(name)
    tensors: list[ModuleTensor] = []
    unknown: list[str] = []
    extra: Tensors = {}
    for names in tied.values():
        candidates = {form.aliases.get(theirs.get(name, name), theirs.get(name, name)) for name in names}
        may_be_extra = not candidates.isdisjoint(form.extra)
        candidates &= form.tensors.keys()
        tensor = parts[names[0]]
        candidates -= {name for name in candidates & may_differ if not _has_form(tensor, form.tensors[name])}
        if len(candidates) > 1 and candidates <= may_differ:
            candidates = {min(candidates)}
        if not candidates and tensor.is_floating_point():
            if may_be_extra:
                extra[names[0]] = tensor
            else:
                unknown.append(names[0])
        elif len(candidates) > 1:
            raise TallmasksError(
                f"The module ties {name_some(sorted(candidates))}, which are different tensors in the bundle. Use a"
                " module of the bundle's architecture."
            )
        tensors += [ModuleTensor(name, tensor, names) for name in candidates]
    buffers = {name for name, _ in module.named_buffers(remove_duplicate=False)}
    unsaved = getattr(module, "_keys_to_ignore_on_save", None) or ()  # parameters that transformers does not save
    unknown = [name for name in unknown if name not in buffers and name not in unsaved]
    missing = sorted(form.tensors.keys() - {one.name for one in tensors} - may_differ)
    if missing or unknown:
        folders = any(map(part_prefix, missing))  # of a model of several parts
        raise TallmasksError(
            "The module and the bundle have different float tensors. Only in the bundle:"
            f" {name_some(missing) or 'none'}; only in the module: {name_some(unknown) or 'none'}. Use a module of the"
            f" bundle's architecture{', or the folder that `tallmasks export` writes' if folders else ''}."
        )
    for name, tensor, _ in tensors:
        if tuple(tensor.shape) != (shape := form.tensors[name].shape):
            raise TallmasksError(
                f"The module's tensor {name} has shape {list(tensor.shape)}; expected {list(shape)}. Use a module of"
                " the bundle's architecture."
            )
    return tensors, extra


def _has_form(tensor: torch.Tensor, expected: TensorInfo) -> bool:
    fits = tensor.is_floating_point() if expected.dtype in FLOATS else torch_codes()[tensor.dtype] == expected.dtype
    return fits and tuple(tensor.shape) == expected.shape


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    if not isinstance(module, torch.nn.Module):
        raise TallmasksError(
            f"module is a {type(module).__name__}; expected a torch.nn.Module. For a state dict, use"
            " bundle.state_dict(task)"
        )
    for prefix, inner in module.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        for name, tensor in (*inner._parameters.items(), *inner._buffers.items()):
            if tensor is not None and name not in inner._non_persistent_buffers_set:
                yield start + name, tensor


def _identity(tensor: torch.Tensor) -> tuple:
    """Equal for tensors that share all their memory."""
    if tensor.is_meta or tensor.numel() == 0:
        return (id(tensor),)
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _as_in_files(module: torch.nn.Module, own: Tensors, form: Form) -> tuple[Tensors, dict[str, str]]:
    """The module's tensors, with those that transformers merged split again, and the bundle name of each: the first of
    `_readings` that matches every tensor of the bundle, else the one that matches most."""
    best: tuple[Tensors, dict[str, str]] = own, {}
    most = -1
    for parts, names in _readings(module, own, form):
        count = len({form.aliases.get(name, name) for name in names.values()} & form.tensors.keys())
        if count > most:
            best, most = (parts, names), count
        if count == len(form.tensors):
            break
    return best


def _readings(module: torch.nn.Module, own: Tensors, form: Form) -> Iterator[tuple[Tensors, dict[str, str]]]:
    """Candidate names: unchanged; without a wrapper's prefix (DDP's ``module.``); with the common prefix of the
    bundle's names; and as transformers renames tensors when it loads a file. Name parts inserted by torch wrappers are
    always removed."""
    plain = {name: unwrapped(name) for name in own}
    for prefix in common_prefixes(plain.values()):
        yield own, {name: short.removeprefix(prefix) for name, short in plain.items()}
    for prefix in common_prefixes(form.tensors)[1:]:
        yield own, {name: prefix + short for name, short in plain.items()}
    if folders := {f"{folder.partition('_')[0]}.": folder for folder in map(part_prefix, form.tensors) if folder}:
        yield own, _in_folders(module, plain, folders)
    parts = _parted(module, own)
    plain = {name: unwrapped(name) for name in parts}
    yield parts, plain | _renamed_by_transformers(module, plain, form)


def _in_folders(module: torch.nn.Module, plain: dict[str, str], folders: Mapping[str, str]) -> dict[str, str]:
    """Names of sentence-transformers' files for its modules: `2.` is the folder `2_Dense/`, and the encoder, of
    transformers, is the first."""
    encoder, _ = _of_transformers(module) or ("0.", None)
    names = {}
    for name, short in plain.items():
        number, dot, rest = short.partition(".")
        inside = short.removeprefix(encoder) if short.startswith(encoder) else rest
        names[name] = folders.get(number + dot, "") + inside
    return names


def _of_transformers(module: torch.nn.Module) -> tuple[str, Any] | None:
    """Prefix and module of the first transformers model in the module."""
    library: Any = sys.modules.get("transformers.modeling_utils")
    for path, inner in module.named_modules() if library else ():
        if isinstance(inner, library.PreTrainedModel):
            return unwrapped(f"{path}.") if path else "", inner
    return None


def _parted(module: torch.nn.Module, own: Tensors) -> Tensors:
    """The module's tensors, where those that transformers merged from several (experts) are replaced by views of their
    parts. Tensors that it converted in another way are returned unchanged."""
    if (of_transformers := _of_transformers(module)) is None:
        return own
    prefix, model = of_transformers
    conversions = Conversions(model)
    parts: Tensors = {}
    for name, tensor in own.items():
        views = conversions.parts(unwrapped(name).removeprefix(prefix), tensor)
        parts |= {prefix + inner: view for inner, view in views.items()} or {name: tensor}
    return parts


def _renamed_by_transformers(module: torch.nn.Module, plain: dict[str, str], form: Form) -> dict[str, str]:
    """The bundle name of each tensor that transformers renames when it loads a file."""
    if (of_transformers := _of_transformers(module)) is None:
        return {}
    prefix, model = of_transformers
    names = {short.removeprefix(prefix): name for name, short in plain.items() if short.startswith(prefix)}
    renamed = {}
    for name, name_in_model, target in Conversions(model).loaded((*form.aliases, *form.tensors), names):
        if target != name_in_model:
            raise TallmasksError(
                f"transformers converts the bundle's {name} to another tensor, the module's {names[target]}, when it"
                " loads a file. Such a module cannot be changed in place. Load the task with"
                f" {type(model).__name__}.from_pretrained(None, config=model.config,"
                " state_dict=bundle.state_dict(task))."
            )
        if target in names:
            renamed[names[target]] = name
    return renamed
