"""EMR-Merging: one unified vector, and for each task a mask of agreeing signs and one scale."""

from collections.abc import Sequence

import numpy as np

from tallmasks.methods import Vector, merge, method
from tallmasks.store.tensor_files import Layout


@merge("emr_unified", paper="Huang et al. 2024, elect")
def elect(rows: Sequence[Vector], out: Vector) -> None:
    """g * max of the |tau_t| whose sign is g, with g the sign of the mean of tau_t."""
    stacked = np.stack(rows)
    sign = np.sign(stacked.sum(axis=0))
    out[:] = sign * np.maximum(stacked * sign, 0).max(axis=0)


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
)
def emr(task_vector: Vector, multi_task_vector: Vector, layout: Layout) -> Vector:
    """The unified vector where tau_t has its sign, rescaled to the magnitude of tau_t.

    The scale follows the official code (harveyhuang18/EMR_Merging), where tensors weigh equally whatever their size;
    the paper's formula sums over all weights alike.
    """
    kept = multi_task_vector * (task_vector * multi_task_vector > 0)
    own, unified = magnitude(task_vector, layout), magnitude(kept, layout)
    return kept * (own / unified if unified else 0.0)


def magnitude(vector: Vector, layout: Layout) -> float:
    """The sum over the tensors of the mean magnitude of their weights."""
    return sum(float(abs(part).mean()) for part in layout.split(vector).values())
