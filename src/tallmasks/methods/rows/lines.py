"""LiNeS on task arithmetic: block by block a larger scale."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import Between, Place, Vector, merge, method
from tallmasks.methods.rows.parts.block_numbers import depths
from tallmasks.vectors.task_vectors import TaskVector

Slope = Annotated[float, Between(0, 10)]


def scales(task_vectors: Sequence[TaskVector], *, beta: Slope = 0.5) -> dict[str, np.float32]:
    """The scale of every tensor."""
    alpha = 1 / len(task_vectors)
    return {name: np.float32(alpha + beta * depth) for name, depth in depths(task_vectors[0].layout.names).items()}


@merge("lines", paper="Wang et al. 2025, LiNeS", over="places", look=scales)
def lines_merge(rows: Sequence[Vector], out: Vector, place: Place, scale: dict[str, np.float32]) -> None:
    """The sum times alpha + beta * l / (L - 1) in block l of L, times alpha outside blocks.

    As the official code (wang-kee/LiNeS, src/eval/eval.py), where alpha = |sum of tau_t| / (T |tau_MTL|), in L1 norms,
    which is 1 / T here.
    """
    out[:] = rows[0]
    for row in rows[1:]:
        out += row
    out *= scale[place.name]


@method(
    name="lines",
    row=32,
    title="Task arithmetic + LiNeS",
    section="merging",
    paper="Wang et al. 2025",
    protocol="scaled",
    storage="single",
    merge="lines",
    unvalidated=1.0,
    tuned="beta",
    coefficients=tuple(round(0.1 * step, 1) for step in range(1, 11)),
    group="later",
)
def lines(multi_task_vector: Vector) -> Vector:
    """The scaled blocks themselves; beta is tuned, as in the official code, and the rest of the formula stays."""
    return multi_task_vector
