"""SWUDI-A: the minimum of WUDI's loss along its strongest directions, in closed form."""

import math
from collections.abc import Sequence

import numpy as np

from tallmasks.methods import Fixed, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.layers_in_blocks import with_inputs_first
from tallmasks.methods.rows.parts.singular_vectors import RoundingErrorOf, is_matrix, rounding_errors
from tallmasks.vectors.task_vectors import TaskVector

EPSILON = float(np.finfo(np.float64).eps)


def rounding_errors_and_orientation(task_vectors: Sequence[TaskVector]) -> tuple[RoundingErrorOf, set[str]]:
    return rounding_errors(task_vectors), with_inputs_first(task_vectors[0].shapes)


@merge("swudi_a", over="tensors", prepare=rounding_errors_and_orientation)
def swudi_a(tensors: Vector, piece: TensorPiece, prepared: tuple[RoundingErrorOf, set[str]]) -> Vector:
    """float32 [T, m, n] -> [m, n]: S - (S C - D) V L^-1 V^T; for all other tensors the mean.

    S is the sum of the D_t, C = sum_t D_t^T D_t / |D_t|^2 and D = sum_t D_t D_t^T D_t / |D_t|^2, so 2 (S C - D) is the
    gradient of WUDI's loss at S. V [n, K] and L are the largest eigenvalues l of C with their eigenvectors, where K =
    (sum of sqrt l)^2 / sum of l, rounded up.

    Like the official code (WalkerWorldPeace/MLLMerging, aswudi_merge with its defaults), averages `lm_head`. There,
    eigenvalues below 1e-8 become 1e-8; here those below the rounding errors are left out. Unlike there, layers with the
    inputs first are transposed, and values are computed in float64.
    """
    rounding_error_of, inputs_first = prepared
    if not is_matrix(tensors.shape[1:]) or "lm_head" in piece.name:
        return tensors.mean(axis=0)
    matrices = tensors.swapaxes(1, 2) if piece.name in inputs_first else tensors
    total = matrices.sum(axis=0, dtype=np.float64)
    gram, gradient, lost = np.zeros((total.shape[1],) * 2), np.zeros_like(total), 0.0
    for one in matrices:
        matrix = one.astype(np.float64)
        if square := np.square(matrix).sum():
            own = matrix.T @ matrix / square
            gram, gradient = gram + own, gradient + (total - matrix) @ own
            lost += rounding_error_of(piece.name) ** 2 / square
    values, vectors = np.linalg.eigh(gram)
    kept = values > max(lost, EPSILON * len(values) * values[-1])
    values, vectors = values[kept], vectors[:, kept]
    if values.size:
        rank = math.ceil(np.sqrt(values).sum() ** 2 / values.sum())
        total -= gradient @ (vectors[:, -rank:] / values[-rank:]) @ vectors[:, -rank:].T
    return total.T if piece.name in inputs_first else total


merged_row("swudi_a", order=69, title="SWUDI-A", paper="Wei et al. 2026", usage=Fixed(1.0), group="later")
