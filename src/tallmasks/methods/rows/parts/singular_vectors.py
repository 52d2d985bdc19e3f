"""Singular vectors of matrices, float32, one matrix at a time, without those that are rounding alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.vectors.task_vectors import TaskVector

Matrix = NDArray[np.float32]
EPSILON = float(np.finfo(np.float32).eps)


class Triplets(NamedTuple):
    """Singular triplets: ``left`` [m, k], ``singular`` [k], ``right`` [k, n].  ``turned`` [k] (radians) is how far
    noise may have turned the vectors of each."""

    left: Matrix
    singular: Matrix
    right: Matrix
    turned: Matrix


NoiseOf = Callable[[str], float]
"""How large what rounding added to a task's matrix is, by the tensor's name: a spectral norm; 0 where nobody knows."""


def noise_of_tasks(task_vectors: Sequence[TaskVector]) -> NoiseOf:
    """That of the task where it is largest."""
    return lambda name: max(vector.noise(name) for vector in task_vectors)


def is_matrix(shape: tuple[int, ...]) -> bool:
    """Whether a tensor of a shape is merged by its singular vectors: two axes, neither of length 1."""
    return len(shape) == 2 and min(shape) > 1


def precision(shape: tuple[int, ...]) -> float:
    """The share of the largest singular value up to which float32 cannot tell one from 0: eps max(m, n)."""
    return EPSILON * max(shape)


def top_triplets(matrix: Matrix, count: int, noise: float, of: float | None = None) -> Triplets:
    """The largest singular triplets of float32 [m, n], at most `count` of those above the noise; copies that keep
    nothing else in memory.

    Args:
        matrix: the matrix.
        count: how many at most.
        noise: how large what rounding added to it before is, a spectral norm.
        of: the size of what it was computed from in float32; its own where nothing is said.
    """
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    size = max(of or 0.0, float(singular[0]))
    count = min(count, int((singular > max(noise, precision(matrix.shape) * size)).sum()))
    left, singular, right = left[:, :count].copy(), singular[:count].copy(), right[:count].copy()
    added = max(noise, EPSILON * sum(np.sqrt(matrix.shape)) * size)  # of independent errors of one eps each
    return Triplets(left, singular, right, np.divide(added, singular, dtype=np.float32))


def orthogonalised(parts: Sequence[Triplets]) -> Triplets:
    """Triplets side by side, with U and V each replaced by their polar factor: the nearest matrix, in the Frobenius
    norm, with orthonormal columns or rows (Procrustes).

    It is taken on the numerical range: directions in which the vectors differ by no more than noise are left out.
    """
    left, singular, right, turned = (list(values) for values in zip(*parts, strict=True))
    turns = np.concatenate(turned)
    columns, rows = np.hstack(left), np.vstack(right)
    return Triplets(_polar(columns, turns), np.concatenate(singular), _polar(rows.T, turns).T, turns)


def _polar(columns: Matrix, turned: Matrix) -> Matrix:
    """Of unit vectors [n, k], each known up to an angle."""
    if not turned.size:
        return columns
    left, singular, right = np.linalg.svd(columns, full_matrices=False)
    kept = singular > np.maximum(precision(columns.shape), np.linalg.norm(right * turned, axis=1))
    return left[:, kept] @ right[kept]
