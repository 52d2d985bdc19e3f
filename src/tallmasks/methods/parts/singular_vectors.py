"""Singular vectors of matrices, float32, one matrix at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


def top_triplets(matrix: Matrix, count: int) -> tuple[Matrix, Matrix, Matrix]:
    """The `count` largest singular triplets of float32 [m, n]: [m, count], [count] and [count, n], copies that keep
    nothing else in memory."""
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    return left[:, :count].copy(), singular[:count].copy(), right[:count].copy()


def orthogonal(matrix: Matrix) -> Matrix:
    """The nearest matrix, in the Frobenius norm, whose shorter side is orthonormal (Procrustes): the polar factor."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right
