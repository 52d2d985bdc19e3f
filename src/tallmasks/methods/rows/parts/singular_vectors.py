"""Singular vectors of float32 matrices, without those that consist only of rounding errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.vectors.task_vectors import TaskVector

Matrix = NDArray[np.float32]
EPSILON = float(np.finfo(np.float32).eps)


class Triplets(NamedTuple):
    """Singular triplets: ``left`` [m, k], ``singular`` [k], ``right`` [k, n]. ``turned`` [k], in radians: how far noise
    can have rotated each pair of vectors."""

    left: Matrix
    singular: Matrix
    right: Matrix
    turned: Matrix


RoundingErrorOf = Callable[[str], float]
"""The spectral norm of the rounding errors in a task's matrix, by tensor name; 0 if unknown."""


def rounding_errors(task_vectors: Sequence[TaskVector]) -> RoundingErrorOf:
    """The largest rounding error over the tasks."""
    return lambda name: max(vector.rounding_error(name) for vector in task_vectors)


def is_matrix(shape: tuple[int, ...]) -> bool:
    """True for shapes with two axes, neither of length 1; only these are merged by singular vectors."""
    return len(shape) == 2 and min(shape) > 1


def precision(shape: tuple[int, ...]) -> float:
    """The smallest ratio to the largest singular value that float32 can distinguish from 0: eps max(m, n)."""
    return EPSILON * max(shape)


def top_triplets(matrix: Matrix, count: int, rounding_error: float, of: float | None = None) -> Triplets:
    """The `count` largest singular triplets of float32 [m, n], or fewer if fewer exceed the rounding error.

    Returns copies, so that the full decomposition is freed.

    Args:
        rounding_error: spectral norm of the rounding errors that are already in the matrix.
        of: norm of the terms that the matrix was computed from in float32 (default: the matrix's own norm).
    """
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    size = max(of or 0.0, float(singular[0]))
    count = min(count, int((singular > max(rounding_error, precision(matrix.shape) * size)).sum()))
    left, singular, right = left[:, :count].copy(), singular[:count].copy(), right[:count].copy()
    added = max(rounding_error, EPSILON * sum(np.sqrt(matrix.shape)) * size)  # independent errors of one eps each
    return Triplets(left, singular, right, np.divide(added, singular, dtype=np.float32))


def orthogonalised(parts: Sequence[Triplets]) -> Triplets:
    """Concatenates triplets and replaces U and V each by its polar factor: the nearest matrix, in the Frobenius norm,
    with orthonormal columns or rows (Procrustes). Leaves out directions in which the vectors differ only by noise.
    """
    left, singular, right, turned = (list(values) for values in zip(*parts, strict=True))
    turns = np.concatenate(turned)
    columns, rows = np.hstack(left), np.vstack(right)
    return Triplets(_polar(columns, turns), np.concatenate(singular), _polar(rows.T, turns).T, turns)


def _polar(columns: Matrix, turned: Matrix) -> Matrix:
    """The polar factor of unit vectors [n, k], whose directions are known up to the angles ``turned`` [k]."""
    if not turned.size:
        return columns
    left, singular, right = np.linalg.svd(columns, full_matrices=False)
    kept = singular > np.maximum(precision(columns.shape), np.linalg.norm(right * turned, axis=1))
    return left[:, kept] @ right[kept]
