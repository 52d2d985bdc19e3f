"""EMR-Merging: one unified vector, and per task a mask of agreeing signs and one scale."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tallmasks.io.tensor_files import Layout
from tallmasks.methods import PerTask, TensorPiece, Vector, merge, method, storage_formulas


@merge("emr_unified")
def elect(vectors: Sequence[Vector], piece: TensorPiece, prepared: None) -> Vector:
    """g * max of the |tau_t| with sign g, where g is the sign of the mean of tau_t."""
    stacked = np.stack(vectors)
    sign = np.sign(stacked.sum(axis=0))
    return sign * np.maximum(stacked * sign, 0).max(axis=0)


@method(
    name="emr",
    order=120,
    title="EMR-Merging",
    paper="Huang et al. 2024",
    usage=PerTask(),
    storage=storage_formulas.masked_and_scaled,
    merge="emr_unified",
)
def emr(task_vector: Vector, multi_task_vector: Vector, layout: Layout) -> Any:
    """tau_MTL where tau_t has its sign, times the scale that makes it as long as tau_t.

    As in the official code (harveyhuang18/EMR_Merging), the length is the sum of the tensors' mean magnitudes, so that
    all tensors have the same weight in the scale; in the paper's formula all parameters do.
    """
    mask = task_vector * multi_task_vector > 0
    own, held = (
        math.fsum(float(abs(part).sum()) / math.prod(part.shape) for part in layout.split(vector).values())
        for vector in (task_vector, multi_task_vector * mask)
    )
    return multi_task_vector * mask * (own / held if held else 0.0)
