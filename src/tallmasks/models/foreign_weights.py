"""Checks of weights that others saved: names, and finite values."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, short
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

SAME = 1e-3
"""Largest difference of a frozen value from the pretrained one; half-precision copies are nearer."""


def without_prefix(checkpoint: Checkpoint, example: str) -> dict[str, str]:
    """The checkpoint's name of each tensor, by the name without a prefix, which the tensor ``example`` shows.

    Raises TallmasksError where it holds a tensor with the prefix and without.
    """
    prefix = next((name.removesuffix(example) for name in sorted(checkpoint.names) if name.endswith(example)), "")
    names = {name.removeprefix(prefix): name for name in checkpoint.names}
    if twice := len(checkpoint.names) - len(names):
        raise TallmasksError(
            f"{checkpoint.title}: it holds {twice} of its tensors twice, with and without {prefix!r}; expected one "
            "tensor for each name"
        )
    return names


def check_names(
    checkpoint: Checkpoint, names: Collection[str], wanted: Collection[str], allowed: Collection[str], expected: str
) -> None:
    """Refuse a checkpoint without all wanted tensors, or with tensors that are not allowed.  Messages end: expected."""
    for problem, odd in (("missing", set(wanted) - set(names)), ("not expected", set(names) - set(allowed))):
        if odd:
            raise TallmasksError(
                f"{checkpoint.title}: tensor {short(min(odd))} ({len(odd)} in all) is {problem}; expected {expected}"
            )


def finite_values(checkpoint: Checkpoint, name: str) -> NDArray[np.float32]:
    """A float tensor in float32, read-only.  Raises TallmasksError where a value is not finite."""
    values = checkpoint.float32(name)
    if not np.isfinite(values).all():
        raise TallmasksError(
            f"{checkpoint.title}: tensor {name!r} holds NaN, infinity, or values beyond float32; expected finite "
            "numbers: the training diverged, or the file is damaged"
        )
    return values
