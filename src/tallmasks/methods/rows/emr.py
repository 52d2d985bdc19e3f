"""EMR-Merging: one unified vector, and per task a mask of agreeing signs and one scale."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallmasks.methods import PerTask, ScaledMask, TensorPiece, Vector, merge, method, storage_formulas


@merge("emr_unified")
def elect(vectors: Sequence[Vector], piece: TensorPiece, prepared: None) -> Vector:
    """g * max of the |tau_t| with sign g, where g is the sign of the mean of tau_t."""
    stacked = np.stack(vectors)
    sign = np.sign(stacked.sum(axis=0))
    return sign * np.maximum(stacked * sign, 0).max(axis=0)


def agrees(task_vector: Vector, multi_task_vector: Vector) -> NDArray[np.bool_]:
    """True where tau_t has the elected sign."""
    return task_vector * multi_task_vector > 0


def length(part: Vector, size: int) -> float:
    """The contribution of a slice to the mean magnitude of its tensor's weights.

    As in the official code (harveyhuang18/EMR_Merging), all tensors thus have the same weight in the scale; in the
    paper's formula all parameters do.
    """
    return float(abs(part).sum()) / size


method(
    name="emr",
    row=120,
    title="EMR-Merging",
    paper="Huang et al. 2024",
    protocol=PerTask(),
    storage=storage_formulas.masked_and_scaled,
    merge="emr_unified",
)(ScaledMask(agrees, length))
