"""Reads, writes and checks pretrained weights in safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

from tallmasks.errors import TallmasksError
from tallmasks.io.atomic_files import atomic_path


def write_pretrained(tensors: dict[str, torch.Tensor], recipe: Mapping[str, Any], output: Path) -> None:
    metadata = {"format": "tallmasks/pretrained/1", "recipe": json.dumps(dict(recipe), sort_keys=True)}
    with atomic_path(output) as unfinished:
        save_file(tensors, unfinished, metadata)


def read_pretrained(weights: Path) -> dict[str, torch.Tensor]:
    """The tensors of a pretrained file.  Raises TallmasksError if it is damaged."""
    try:
        return load_file(weights)
    except SafetensorError as error:
        raise TallmasksError(f"{weights}: not a complete safetensors file ({error}). Restore or rebuild it.") from None


def check_tensors(weights: Path, expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise TallmasksError for unexpected or missing names, wrong shapes, and values that are not finite."""
    remedy = "The file must match `architecture` in params.yaml: restore one of them, or pretrain again."
    missing, extra = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
    for what, names in (("missing", missing), ("not expected", extra)):
        if names:
            raise TallmasksError(f"{weights}: tensor {min(names)!r} ({len(names)} in total) is {what}. {remedy}")
    for name, shape in expected.items():
        if tensors[name].shape != shape:
            raise TallmasksError(
                f"{weights}: tensor {name!r} has shape {list(tensors[name].shape)}, expected {list(shape)}. {remedy}"
            )
        if not _is_finite(tensors[name]):
            raise TallmasksError(f"{weights}: tensor {name!r} contains NaN or infinity. {remedy}")


def _is_finite(tensor: torch.Tensor) -> bool:
    """``torch.isfinite(tensor).all()`` in one pass over the tensor instead of several."""
    if not tensor.numel() or not tensor.is_floating_point():
        return bool(torch.isfinite(tensor).all())
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())  # both are NaN if any value is


class ZeroInitialised(TorchFunctionMode):
    """A context that writes 0 instead of random numbers, for networks whose weights are then loaded; it saves seconds.
    Left as they are, values out of bounds would be drawn again and again by torch's `trunc_normal_`."""

    _DRAWN = ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", None) in self._DRAWN:
            tensor = args[0] if args else kwargs["tensor"]
            tensor.detach().zero_()
            return tensor
        return func(*args, **(kwargs or {}))
