"""Approximations of a matrix by a product of low rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

_ITERATIONS, _OVERSAMPLED = 4, 10
_LARGE = 8  # how many times more rows and columns than computed vectors a large matrix has


def truncated_svd(matrix: Matrix, rank: int) -> tuple[Matrix, Matrix, float]:
    """The closest product of this rank, left [m, r] and right [r, n] of a finite ``matrix`` [m, n] with
    r = min(rank, m, n), and the product's squared norm (Eckart and Young 1936).

    For a large matrix by randomised subspace iteration from a fixed seed (Halko, Martinsson and Tropp 2011, algorithm
    4.4). The product is a projection of the matrix then, too, so the rest has the rest of the squared norm.
    """
    columns, is_large = rank + _OVERSAMPLED, min(matrix.shape) >= _LARGE * (rank + _OVERSAMPLED)
    if is_large:
        basis = np.linalg.qr(matrix @ np.random.default_rng(0).standard_normal((matrix.shape[1], columns), np.float32))[
            0
        ]
        for _ in range(_ITERATIONS):
            basis = np.linalg.qr(matrix @ np.linalg.qr(matrix.T @ basis)[0])[0]
    left, values, right = np.linalg.svd(basis.T @ matrix if is_large else matrix, full_matrices=False)
    left, roots = (basis @ left if is_large else left)[:, :rank], np.sqrt(values[:rank])
    return left * roots, roots[:, None] * right[:rank], float(np.square(values[:rank], dtype=np.float64).sum())


def squared_norm(values: NDArray[np.float32]) -> float:
    return float(np.einsum("i,i->", values.reshape(-1), values.reshape(-1), dtype=np.float64))
