"""The tensors of a live module under a bundle's names, where wrappers or transformers have renamed or joined them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.bundles.manifest import Manifest
from tallmasks.errors import TallmasksError
from tallmasks.io.dtypes import FLOATS, torch_codes, torch_dtypes
from tallmasks.io.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import TensorInfo
from tallmasks.vectors.checkpoints.loaded_names import Conversions, unwrapped

Tensors = dict[str, torch.Tensor]


class ModuleTensor(NamedTuple):
    """A tensor of a module, or a view of a part of one.  It has the bundle's name, and its names in the module."""

    name: str
    tensor: torch.Tensor
    names: list[str]

    @property
    def dtype(self) -> str:
        """safetensors' code of the module's dtype."""
        return torch_codes()[self.tensor.dtype]


@dataclass(frozen=True)
class Form:
    """The tensors that a module must have.

    Attributes:
        tensors, aliases: of the model, as in a `Checkpoint`.
        free: tensors that a module may lack, or have in another shape: what is computed anew, and heads.
        heads: the tensors of the model that some task of the bundle has as its own.
        beside: names of tensors that a module may have in addition: heads, and what this model lacks of the base.
    """

    tensors: Mapping[str, TensorInfo]
    aliases: Mapping[str, str]
    free: Set[str]
    heads: Set[str]
    beside: Set[str]


def form_of(manifest: Manifest, task: str | None) -> Form:
    """The form of a task's model, or of the base."""
    model = manifest.model(task or "")
    tensors = {name: TensorInfo(one.dtype, one.shape) for name, one in manifest.tensors.items()}
    tensors = {name: info for name, info in tensors.items() if name not in model.missing}
    tensors |= {name: TensorInfo(one.dtype, one.shape) for name, one in model.own.items()}
    aliases = {alias: name for alias, name in manifest.aliases.items() if alias not in tensors and name in tensors}
    heads = {name for one in manifest.models.values() for name in one.own}
    free = manifest.free | heads
    if task is None:  # a module without what some task's model lacks was switched, too
        free |= {name for one in manifest.models.values() for name in one.missing}
    return Form(tensors, aliases, free, heads & tensors.keys(), heads | (manifest.tensors.keys() - tensors.keys()))


def tensor_of(raw: NDArray[np.uint8], info: TensorInfo) -> torch.Tensor:
    """The bytes of a tensor as a tensor, which shares their memory."""
    # of an empty array torch sees no row to take apart
    flat = torch.from_numpy(raw) if raw.size else torch.empty(0, dtype=torch.uint8)
    return flat.view(torch_dtypes()[info.dtype]).reshape(info.shape)


def module_tensors(module: torch.nn.Module, form: Form, keep_heads: bool) -> tuple[list[ModuleTensor], tuple[str, ...]]:
    """The parameters and persistent buffers of a module that a model has values of, tied ones once; and the names of
    the task's own tensors that the module has no place for.

    Counters, masks and tables may be in one of the two only.  So may what the module registers as a buffer and the
    bundle lacks, and heads with ``keep_heads``.  Raises TallmasksError where names, shapes or ties of the other float
    tensors are not the model's.  Also for a module without values.
    """
    matched, beside = _matched(module, form)
    tensors = sorted(matched, key=lambda one: one.name)
    left = tuple(sorted(form.heads - {one.name for one in tensors}))
    if (left or beside) and not keep_heads:
        raise TallmasksError(
            f"The task's model has {name_some(left) or 'no head'} of its own, for which the module has no place, and"
            f" the module has {name_some(beside) or 'nothing'} beside it. Build the module from the task's"
            " configuration (`tallmasks export` writes it), or leave heads as they are: keep_heads=True"
        )
    for name, tensor, _ in tensors:
        is_known = torch_codes().get(tensor.dtype) in (*FLOATS, form.tensors[name].dtype)
        if not is_known or tensor.is_meta or tensor.layout != torch.strided:
            raise TallmasksError(
                f"The module's tensor {name} is {tensor.dtype}, {tensor.layout}, on {tensor.device}; expected float32,"
                " bfloat16, float16 or float64 values in memory. Load the model whole, without quantisation, device_map"
                " and offloading."
            )
    return tensors, left


def state_for(module: torch.nn.Module, form: Form, weights: Mapping[str, torch.Tensor]) -> Tensors:
    """A bundle's state dict under a module's names, every tied name included.

    Tensors without floats that the bundle's base lacks are the module's own.  The module's tensors need no values.
    Raises TallmasksError as :func:`module_tensors`.
    """
    (tensors, _), own = _matched(module, form), module.state_dict()
    parts, names = _as_in_files(module, own, form)
    state = {name: weights.get(names.get(name, name), own[name]) for name in own.keys() & parts.keys()}
    state |= {name: weights[one.name] for one in tensors for name in one.names if name in own}
    for joined in own.keys() - parts.keys():
        state[joined] = torch.empty_like(own[joined], device="cpu")
        for name, part in _parted(module, {joined: state[joined]}).items():
            part.copy_(weights[names[name]])
    return state


def _matched(module: torch.nn.Module, form: Form) -> tuple[list[ModuleTensor], list[str]]:
    """The module's tensors that the model has, and the names of its tensors that the model has no values for."""
    own = dict(_named_tensors(module))
    free = form.free
    parts, theirs = _as_in_files(module, own, form)
    tied: dict[tuple, list[str]] = {}
    for name, tensor in parts.items():
        tied.setdefault(_identity(tensor), []).append(name)
    tensors: list[ModuleTensor] = []
    strange: list[str] = []
    beside: list[str] = []
    for names in tied.values():
        candidates = {form.aliases.get(theirs.get(name, name), theirs.get(name, name)) for name in names}
        may_be_beside = not candidates.isdisjoint(form.beside)
        candidates &= form.tensors.keys()
        tensor = parts[names[0]]
        candidates -= {name for name in candidates & free if not _has_form(tensor, form.tensors[name])}
        if len(candidates) > 1 and candidates <= free:
            candidates = {min(candidates)}
        if not candidates:
            (beside if may_be_beside else strange).extend(names[:1] if tensor.is_floating_point() else [])
        elif len(candidates) > 1:
            raise TallmasksError(
                f"The module ties {name_some(sorted(candidates))}, which are different tensors in the bundle; expected"
                " the model that the bundle was made of."
            )
        tensors += [ModuleTensor(name, parts[names[0]], names) for name in candidates]
    if strange:
        buffers = {name for name, _ in module.named_buffers(remove_duplicate=False)}
        strange = [name for name in strange if name not in buffers]
    missing = sorted(form.tensors.keys() - {one.name for one in tensors} - free)
    if missing or strange:
        raise TallmasksError(
            f"The module lacks {name_some(missing) or 'nothing'} of the bundle, as tensors of floats, and has"
            f" {name_some(strange) or 'nothing'}, which the bundle lacks; expected the model that it was made of."
        )
    for name, tensor, _ in tensors:
        if tuple(tensor.shape) != (shape := form.tensors[name].shape):
            raise TallmasksError(
                f"The module's tensor {name} has the shape {list(tensor.shape)}; the bundle expects {list(shape)}. Give"
                " the model that the bundle was made of."
            )
    return tensors, beside


def _has_form(tensor: torch.Tensor, expected: TensorInfo) -> bool:
    fits = tensor.is_floating_point() if expected.dtype in FLOATS else torch_codes()[tensor.dtype] == expected.dtype
    return fits and tuple(tensor.shape) == expected.shape


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    if not isinstance(module, torch.nn.Module):
        raise TallmasksError(
            f"found a {type(module).__name__}; expected a torch.nn.Module. `bundle.state_dict(task)` gives a state dict"
        )
    for prefix, inner in module.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        for name, tensor in (*inner._parameters.items(), *inner._buffers.items()):
            if tensor is not None and name not in inner._non_persistent_buffers_set:
                yield start + name, tensor


def _identity(tensor: torch.Tensor) -> tuple:
    """Equal for two tensors that are the same values in memory."""
    if tensor.is_meta or tensor.numel() == 0:
        return (id(tensor),)
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _as_in_files(module: torch.nn.Module, own: Tensors, form: Form) -> tuple[Tensors, dict[str, str]]:
    """A module's tensors, those that transformers joined in parts, and the bundle's name for each of their names.

    Of the readings in `_readings`, the first that has every tensor of the bundle, else the one that has most.
    """
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
    """The names as they are, without a wrapper's prefix (DDP's ``module.``), and with the prefix of all the bundle's
    names.  Last, as transformers renames the tensors of a file.  What torch's wrappers insert never counts."""
    plain = {name: unwrapped(name) for name in own}
    yield own, plain
    for prefix in _prefixes(plain.values()):
        yield own, {name: short.removeprefix(prefix) for name, short in plain.items()}
    for prefix in _prefixes(form.tensors):
        yield own, {name: prefix + short for name, short in plain.items()}
    parts = _parted(module, own)
    plain = {name: unwrapped(name) for name in parts}
    yield parts, plain | _renamed_by_transformers(module, plain, form)


def _prefixes(names: Collection[str]) -> Iterator[str]:
    """The paths of modules in which all of the names are, the shortest first."""
    prefix = ""
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            return
        prefix += f"{parts[0]}."
        yield prefix


def _of_transformers(module: torch.nn.Module) -> tuple[str, Any] | None:
    """The prefix and the first module that is one of transformers'."""
    library: Any = sys.modules.get("transformers.modeling_utils")
    for path, inner in module.named_modules() if library else ():
        if isinstance(inner, library.PreTrainedModel):
            return unwrapped(f"{path}.") if path else "", inner
    return None


def _parted(module: torch.nn.Module, own: Tensors) -> Tensors:
    """A module's tensors; one that transformers joined of several (experts') as views of its parts, by their names.

    A tensor that was converted otherwise stays as it is.
    """
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
    """The bundle's name for each name of the module's that transformers would load from a file with those names."""
    if (of_transformers := _of_transformers(module)) is None:
        return {}
    prefix, model = of_transformers
    names = {short.removeprefix(prefix): name for name, short in plain.items() if short.startswith(prefix)}
    renamed = {}
    for name, target, changed in Conversions(model).loaded((*form.aliases, *form.tensors), names):
        if changed:
            raise TallmasksError(
                f"transformers converts {name} of the bundle to another tensor, {names[target]} of the module, as it"
                f" loads a file; such a module cannot be changed in place. Load the task with"
                f" {type(model).__name__}.from_pretrained(None, config=model.config,"
                " state_dict=bundle.state_dict(task))."
            )
        if target in names:
            renamed[names[target]] = name
    return renamed
