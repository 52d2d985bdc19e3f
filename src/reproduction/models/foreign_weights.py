"""Checks names, shapes and values of imported weights."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, short
from tallmasks.io.plain_files import read_plain_json
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

SAME = 1e-3
"""Largest allowed difference between a frozen value and the pretrained one; half-precision rounding is smaller."""


def json_of(path: Path) -> dict[str, Any]:
    """The content of a configuration file.  Raises TallmasksError if it is missing or not a JSON object."""
    try:
        content = read_plain_json(path)
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise TallmasksError(
            f"{path}: missing, or not a JSON object; expected the model's configuration, as transformers saves it"
        )
    return content


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


def float_array(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A float tensor in float32, read-only.

    Raises TallmasksError if it has another shape, is not of floats, or has values that are not finite.
    """
    info = checkpoint.info(name)
    if info.shape != shape or not info.is_float:
        raise TallmasksError(
            f"{checkpoint.title}: tensor {name!r} is {list(info.shape)} of {info.dtype}, expected {list(shape)} of "
            "floats, as in `architecture` in params.yaml"
        )
    values = checkpoint.float32(name)
    if not np.isfinite(values).all():
        raise TallmasksError(
            f"{checkpoint.title}: tensor {name!r} contains NaN, infinity, or values beyond float32; expected finite "
            "numbers: the training diverged, or the file is damaged"
        )
    return values
