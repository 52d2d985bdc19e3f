"""Fisher merging: the mean of the models, weighted by each task's diagonal Fisher information."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tallmasks.methods import Fixed, Statistics, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.merges import FISHER
from tallmasks.vectors.task_vectors import TaskVector

EPSILON = 1e-6
Prepared = tuple[list[np.float32], Sequence[Statistics]]


def shares(task_vectors: Sequence[TaskVector], statistics: Sequence[Statistics]) -> Prepared:
    """The weight of each model, 1 / |F_t| over all of its parameters, normalised to sum to 1; and the F_t."""
    squares = [[np.square(part, dtype=np.float64).sum() for part in one.values()] for one in statistics]
    inverse = [1 / (math.sqrt(math.fsum(parts)) + EPSILON) for parts in squares]
    return [np.float32(value / sum(inverse)) for value in inverse], statistics


@merge("fisher", prepare=shares, statistics=FISHER)
def fisher(vectors: Sequence[Vector], piece: TensorPiece, prepared: Prepared) -> Vector:
    """sum_t w_t tau_t / sum_t w_t with w_t = (F_t + 1e-6) / |F_t|, which is the same mean of the models theta_t.

    Like MergeLM's code with normalised weights (yule-BUAA/MergeLM, model_merging_methods/merging_methods.py).
    """
    weights = [
        share * (one[piece.name].reshape(-1)[piece.start : piece.stop] + np.float32(EPSILON))
        for share, one in zip(*prepared, strict=True)
    ]
    return np.divide(sum(w * vector for w, vector in zip(weights, vectors, strict=True)), sum(weights))


merged_row("fisher", order=22, title="Fisher merging", paper="Matena and Raffel 2022", usage=Fixed(1.0), group="later")
