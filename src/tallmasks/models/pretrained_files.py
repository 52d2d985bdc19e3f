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
from tallmasks.io.atomic_files import whole


def write_pretrained(tensors: dict[str, torch.Tensor], recipe: Mapping[str, Any], output: Path) -> None:
    metadata = {"format": "tallmasks/pretrained/1", "recipe": json.dumps(dict(recipe), sort_keys=True)}
    with whole(output) as unfinished:
        save_file(tensors, unfinished, metadata)


def read_pretrained(weights: Path) -> dict[str, torch.Tensor]:
    """The tensors of a pretrained file.  Raises TallmasksError if it is missing or damaged."""
    if not weights.exists():
        raise TallmasksError(
            f"{weights}: no such file. The tiny model ships with the project: `git checkout` restores it. Any other is "
            "what `pretrained` in params.yaml says."
        )
    try:
        return load_file(weights)
    except SafetensorError as error:
        raise TallmasksError(f"{weights}: not a whole safetensors file ({error}). Restore or remake it.") from None


def check_tensors(weights: Path, expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise TallmasksError for tensors with other names or shapes than expected, or with NaN or infinity."""
    remedy = "The file and `architecture` in params.yaml must belong together: restore one, or pretrain anew."
    missing, extra = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
    for what, names in (("missing", missing), ("not expected", extra)):
        if names:
            raise TallmasksError(f"{weights}: tensor {min(names)!r} ({len(names)} in all) is {what}. {remedy}")
    for name, shape in expected.items():
        if tensors[name].shape != shape:
            raise TallmasksError(
                f"{weights}: tensor {name!r} has shape {list(tensors[name].shape)}, expected {list(shape)}. {remedy}"
            )
        if not is_finite(tensors[name]):
            raise TallmasksError(f"{weights}: tensor {name!r} holds NaN or infinity. {remedy}")


def is_finite(tensor: torch.Tensor) -> bool:
    """Like ``torch.isfinite(tensor).all()``, which reads the tensor several times, but in one pass."""
    if not tensor.numel() or not tensor.is_floating_point():
        return bool(torch.isfinite(tensor).all())
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())  # both are NaN if any value is


class Uninitialised(TorchFunctionMode):
    """A context that skips random initialisation, which takes seconds, before weights are loaded from a file."""

    _DRAWN = ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", None) in self._DRAWN:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
