"""Weights that others saved, held against what a family expects: names, shapes, finite values."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.errors import TallmasksError, short
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

SAME = 1e-3
"""How far a frozen value may be from the pretrained one: half-precision copies are nearer."""


def without_prefix(checkpoint: Checkpoint, some: str) -> dict[str, str]:
    """The checkpoint's name of each tensor, by the name without what stands before all of them.

    Args:
        checkpoint: the checkpoint.
        some: the name of one tensor, without a prefix.

    Raises:
        TallmasksError: it holds a tensor with the prefix and without.
    """
    prefix = next((name.removesuffix(some) for name in sorted(checkpoint.names) if name.endswith(some)), "")
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
    """Refuse a checkpoint without all wanted tensors, or with tensors that are not allowed.  ``expected`` is said."""
    for what, some in (("missing", set(wanted) - set(names)), ("not expected", set(names) - set(allowed))):
        if some:
            raise TallmasksError(
                f"{checkpoint.title}: tensor {short(min(some))} ({len(some)} in all) is {what}; expected {expected}"
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
