"""Pretrained files on their way into a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode

from tallmasks.store.errors import TallmasksError


def read_pretrained(weights: Path) -> dict[str, torch.Tensor]:
    """The tensors of a pretrained file.

    Raises:
        TallmasksError: it is missing, or no whole safetensors file.
    """
    if not weights.exists():
        raise TallmasksError(
            f"{weights}: no such file. The tiny model ships with the project: `git checkout` restores it, and "
            "`snakemake pretrain_tiny` makes it anew. Any other is what `pretrained` in params.yaml says."
        )
    try:
        return load_file(weights)
    except SafetensorError as error:
        raise TallmasksError(f"{weights}: not a whole safetensors file ({error}). Restore or remake it.") from None


def check_tensors(weights: Path, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, torch.Tensor]) -> None:
    """Refuse a file whose tensor names or shapes differ from the architecture's, or that holds NaN or infinity.

    Args:
        weights: the file, for messages.
        expected: shapes by name.
        found: what the file holds.
    """
    remedy = "The file and `architecture` in params.yaml must belong together: restore one, or pretrain anew."
    for what, names in (("missing", expected.keys() - found.keys()), ("not expected", found.keys() - expected.keys())):
        if names:
            raise TallmasksError(f"{weights}: tensor {min(names)!r} ({len(names)} in all) is {what}. {remedy}")
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise TallmasksError(
                f"{weights}: tensor {name!r} has shape {list(found[name].shape)}, expected {list(shape)}. {remedy}"
            )
        if not is_finite(found[name]):
            raise TallmasksError(f"{weights}: tensor {name!r} holds NaN or infinity. {remedy}")


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor, of any shape and dtype, holds no NaN and no infinity: in one walk, where
    ``torch.isfinite(tensor).all()`` takes several and memory for each."""
    if not tensor.numel() or not tensor.is_floating_point():
        return bool(torch.isfinite(tensor).all())
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())  # NaN is both the least and the largest


class Uninitialised(TorchFunctionMode):
    """Leaves out drawing initial weights, which take seconds, where all of them are loaded from a file anyway."""

    _DRAWN = ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", None) in self._DRAWN:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
