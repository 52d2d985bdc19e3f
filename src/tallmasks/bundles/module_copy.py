"""The tensors of a torch module: which of them a bundle means, and a copy of them that stands for theta_0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.manifest import Manifest
from tallmasks.bundles.module_names import bundle_names
from tallmasks.store.dtypes import float_codes
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import name_some

if TYPE_CHECKING:
    import torch


class _Kept(NamedTuple):
    dtype: str
    shape: tuple[int, ...]


class PlacedTensor(NamedTuple):
    """A tensor of a module, with the bundle's name of it; ``dtype`` is safetensors' code of the module's dtype."""

    name: str
    tensor: torch.Tensor
    dtype: str


def placed_tensors(module: torch.nn.Module, manifest: Manifest) -> list[PlacedTensor]:
    """The parameters and persistent buffers of a module that a bundle has values of; tied ones once.

    Raises TallmasksError, one line, where names, shapes or ties of the module's tensors of floats are not the
    bundle's, or they have no values: tensors that the bundle lacks are refused unless they are tied to one that it has.
    """
    for name, tensor in _named_tensors(module):
        if tensor.is_meta and tensor.is_floating_point():
            raise TallmasksError(
                f"The module's tensor {name} is on the meta device, without values. {_why_meta(module)}"
            )
    matched = _matched(module, manifest)
    for one in matched:
        _check_values(one.name, one.tensor)
    return [
        PlacedTensor(one.name, one.tensor, float_codes()[one.tensor.dtype])
        for one in sorted(matched, key=lambda one: one.name)
    ]


def state_for(
    module: torch.nn.Module, manifest: Manifest, found: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """A state dict under the names of a bundle as one under those of a module, every tied name in it.

    Tensors that are no floats, and that the bundle's base lacks, are the module's own.
    Raises TallmasksError as :func:`placed_tensors`; the module's tensors need no values.
    """
    matched = _matched(module, manifest)
    own = module.state_dict()
    names = bundle_names(module, own, manifest)
    state = {name: found.get(names[name], tensor) for name, tensor in own.items()}
    return state | {name: found[one.name] for one in matched for name in one.names}


class _Matched(NamedTuple):
    """A tensor of a module, its names there, and the bundle's name of it."""

    name: str
    names: list[str]
    tensor: torch.Tensor


def _matched(module: torch.nn.Module, manifest: Manifest) -> list[_Matched]:
    names_of: dict[tuple, list[str]] = {}
    tensors: dict[tuple, torch.Tensor] = {}
    for name, tensor in _named_tensors(module):
        if not tensor.is_floating_point():
            continue
        key = _identity(tensor)
        names_of.setdefault(key, []).append(name)
        tensors[key] = tensor
    theirs = bundle_names(module, [name for names in names_of.values() for name in names], manifest)
    matched: list[_Matched] = []
    strange: list[str] = []
    for key, names in names_of.items():
        known = {manifest.aliases.get(theirs[name], theirs[name]) for name in names} & manifest.tensors.keys()
        if not known:
            strange.append(names[0])
        elif len(known) > 1:
            raise TallmasksError(
                f"The module ties {name_some(sorted(known))}, which are different tensors in the bundle; expected the"
                " model that the bundle was made of."
            )
        matched += [_Matched(name, names, tensors[key]) for name in known]
    if missing := manifest.tensors.keys() - {one.name for one in matched}:
        raise TallmasksError(
            f"The module lacks {name_some(sorted(missing))} of the bundle, as tensors of floats, and has"
            f" {name_some(strange) or 'no other'}; expected the model that the bundle was made of."
        )
    if strange:
        raise TallmasksError(
            f"The module has {name_some(strange)}, which the bundle lacks; expected the model that it was made of."
        )
    for name, _, tensor in matched:
        if tuple(tensor.shape) != (shape := manifest.tensors[name].shape):
            raise TallmasksError(
                f"The module's tensor {name} has the shape {list(tensor.shape)}; the bundle expects {list(shape)}. Give"
                " the model that the bundle was made of."
            )
    return matched


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
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


def _check_values(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in float_codes() or str(tensor.layout) != "torch.strided":
        raise TallmasksError(
            f"The module's tensor {name} is {tensor.dtype}, {tensor.layout}, on {tensor.device}; expected float32,"
            " bfloat16, float16 or float64 values in memory. Load the model without quantisation."
        )


def _why_meta(module: torch.nn.Module) -> str:
    if any(hasattr(part, "_hf_hook") for part in module.modules()):
        return "accelerate has offloaded it: load the model whole into memory, without device_map and offloading."
    return "Load or create the model with its values, in memory, before a task is applied."


@dataclass(frozen=True)
class ModuleCopy:
    """theta_0 as a module had it: ``values`` flat, each on the device where it was. A Theta0 without files."""

    values: Mapping[str, torch.Tensor]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, placed: list[PlacedTensor], names: Mapping[str, Any]) -> ModuleCopy:
        """A copy of those of a module's tensors that are among ``names``."""
        import torch

        with torch.no_grad():
            copied = {
                name: tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
                for name, tensor, _ in placed
                if name in names
            }
        return cls(copied, {name: tuple(tensor.shape) for name, tensor, _ in placed if name in names})

    @cached_property
    def tensors(self) -> dict[str, _Kept]:
        return {n: _Kept(float_codes()[tensor.dtype], self.shapes[n]) for n, tensor in self.values.items()}

    @property
    def aliases(self) -> dict[str, str]:
        return {}

    @property
    def files(self) -> dict[str, Path]:
        return {}

    @property
    def companions(self) -> dict[str, Path]:
        return {}

    @property
    def index(self) -> None:
        return None

    @property
    def origin(self) -> dict[str, Any]:
        return {}

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        return self.values[name][start:stop].cpu().float().numpy()

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        import torch

        return self.values[name][start:stop].cpu().view(torch.uint8).numpy()

    def sha256s(self) -> dict[str, str]:
        return {}
