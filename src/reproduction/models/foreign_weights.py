"""Checks tensor names and values of imported weights."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, short
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

SAME = 1e-3
"""Largest allowed difference between a frozen value and the pretrained one; half-precision rounding is smaller."""


def without_prefix(checkpoint: Checkpoint, example: str) -> dict[str, str]:
    """The checkpoint's tensor names by their names without the common prefix.

    The prefix is what precedes ``example`` in the checkpoint.  Raises TallmasksError if a tensor occurs both with and
    without the prefix.
    """
    prefix = next((name.removesuffix(example) for name in sorted(checkpoint.names) if name.endswith(example)), "")
    names = {name.removeprefix(prefix): name for name in checkpoint.names}
    if twice := len(checkpoint.names) - len(names):
        raise TallmasksError(
            f"{checkpoint.title}: found {twice} tensors twice, with and without the prefix {prefix!r}; expected each "
            "tensor once"
        )
    return names


def check_names(
    checkpoint: Checkpoint, names: Collection[str], wanted: Collection[str], allowed: Collection[str], expected: str
) -> None:
    """Raise TallmasksError if a wanted tensor is missing or a tensor is not allowed; messages end with ``expected``."""
    for problem, odd in (("missing", set(wanted) - set(names)), ("not expected", set(names) - set(allowed))):
        if odd:
            raise TallmasksError(
                f"{checkpoint.title}: tensor {short(min(odd))} ({len(odd)} in total) is {problem}; expected {expected}"
            )


def finite_values(checkpoint: Checkpoint, name: str) -> NDArray[np.float32]:
    """A float tensor in float32, read-only.  Raises TallmasksError if a value is not finite."""
    values = checkpoint.float32(name)
    if not np.isfinite(values).all():
        raise TallmasksError(
            f"{checkpoint.title}: tensor {name!r} contains NaN, infinity, or values beyond float32; expected finite "
            "numbers: the training diverged, or the file is damaged"
        )
    return values
