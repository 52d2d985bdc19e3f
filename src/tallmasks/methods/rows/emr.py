"""EMR-Merging: one unified vector, and for each task a mask of agreeing signs and one scale."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallmasks.methods import ScaledMask, Vector, merge, method
from tallmasks.store.tensor_files import Layout


@merge("emr_unified", paper="Huang et al. 2024, elect")
def elect(rows: Sequence[Vector], out: Vector) -> None:
    """g * max of the |tau_t| whose sign is g, with g the sign of the mean of tau_t."""
    stacked = np.stack(rows)
    sign = np.sign(stacked.sum(axis=0))
    out[:] = sign * np.maximum(stacked * sign, 0).max(axis=0)


def agrees(task_vector: Vector, multi_task_vector: Vector) -> NDArray[np.bool_]:
    """Where tau_t has the sign that was elected."""
    return task_vector * multi_task_vector > 0


def length(part: Vector, size: int) -> float:
    """The mean magnitude of a tensor's weights, as far as some of them add to it."""
    return float(abs(part).sum()) / size


@method(
    name="emr",
    row=120,
    title="EMR-Merging",
    section="compression",
    paper="Huang et al. 2024",
    protocol="per_task",
    storage="masked_and_scaled",
    merge="emr_unified",
    over="model",
    scaled_mask=ScaledMask(agrees, length),
)
def emr(task_vector: Vector, multi_task_vector: Vector, layout: Layout) -> Vector:
    """The unified vector where tau_t has its sign, rescaled to the magnitude of tau_t.

    The scale follows the official code (harveyhuang18/EMR_Merging), where tensors weigh equally whatever their size;
    the paper's formula sums over all weights alike.
    """
    kept = multi_task_vector * agrees(task_vector, multi_task_vector)
    own, held = (
        math.fsum(length(part, math.prod(part.shape)) for part in layout.split(vector).values())
        for vector in (task_vector, kept)
    )
    return kept * ScaledMask.scale(own, held)
