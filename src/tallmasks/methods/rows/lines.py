"""LiNeS on task arithmetic: a scale that grows with the block number."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import Between, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.block_numbers import depths
from tallmasks.methods.rows.task_arithmetic import sum_merge
from tallmasks.vectors.task_vectors import TaskVector

Slope = Annotated[float, Between(0, 10)]


def scales(task_vectors: Sequence[TaskVector], *, beta: Slope = 0.5) -> dict[str, np.float32]:
    """The scale of every tensor."""
    alpha = 1 / len(task_vectors)
    return {name: np.float32(alpha + beta * depth) for name, depth in depths(task_vectors[0].shapes).items()}


@merge("lines", prepare=scales)
def lines(vectors: Sequence[Vector], piece: TensorPiece, scale: dict[str, np.float32]) -> Vector:
    """The sum times alpha + beta * l / (L - 1) in block l of L, and times alpha outside blocks.

    Like the official code (wang-kee/LiNeS, src/eval/eval.py). Its alpha = |sum of tau_t| / (T |tau_MTL|), in L1 norms,
    is 1 / T for a sum.
    """
    return sum_merge(vectors, piece, None) * scale[piece.name]


merged_row(
    "lines",
    order=32,
    title="Task arithmetic + LiNeS",
    paper="Wang et al. 2025",
    usage=Scaled(tuple(round(0.1 * step, 1) for step in range(1, 11)), tuned="beta", unvalidated=1.0),
    group="later",
)
