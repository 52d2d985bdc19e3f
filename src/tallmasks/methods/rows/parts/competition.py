"""Parameter competition (Du et al. 2024, PCB-Merging): the score of each task's value relative to the other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tallmasks.errors import TallmasksError
from tallmasks.vectors import kernels
from tallmasks.vectors.kernels import Vector
from tallmasks.vectors.task_vectors import TaskVector

CLAMPED = 0.01


@dataclass(frozen=True)
class Balance:
    """Clamping bounds of the magnitudes, and the range of scores that is mapped to 0..1; float32 [T, 1] each."""

    low: Vector
    high: Vector
    floor: Vector
    top: Vector

    def weighted(self, vectors: Sequence[Vector]) -> tuple[Vector, Vector]:
        """Clamped values and their weights, from 0 at the floor to 1 at the top; float32 [T, n] each."""
        values, scores = self.scored(vectors)
        return values, from_0_to_1(scores.clip(self.floor, self.top), self.floor, self.top)

    def scored(self, vectors: Sequence[Vector]) -> tuple[Vector, Vector]:
        """Clamped values and exp(T n_i^2) * sum_j tanh(n_i n_j), float32 [T, n], with signed magnitudes n scaled to
        0..1."""
        stacked = np.stack(vectors)
        size, signs = np.clip(abs(stacked), self.low, self.high), np.sign(stacked)
        unit = signs * from_0_to_1(size, self.low, self.high)
        agreeing = np.stack([np.tanh(own * unit).sum(axis=0) for own in unit])
        return signs * size, np.exp(np.float32(len(vectors)) * unit**2) * agreeing


def from_0_to_1(values: Vector, low: Vector, high: Vector) -> Vector:
    """Rescales [T, n] so that low becomes 0 and high becomes 1."""
    return np.divide(values - low, np.where(high > low, high - low, np.float32(1)), dtype=np.float32)


def balance_of(task_vectors: Sequence[TaskVector], ratio: float) -> Balance:
    """Computes the clamping bounds from each task's values, then the floor and top of its scores.

    Quantiles are over all parameters, including frozen ones. Raises TallmasksError if a task moved so few weights that
    all would be clamped to 0.
    """
    flats, frozen = [vector.flat for vector in task_vectors], task_vectors[0].frozen
    size = flats[0].size
    whole = size + frozen
    first, last, least = (int(whole * share) - frozen for share in (CLAMPED, 1 - CLAMPED, 1 - ratio))
    low, high = (
        np.array([[_nth(flat, rank)] for flat in flats]) for rank in (first + 1, last if frozen else max(last, 1))
    )
    for task, (flat, largest) in enumerate(zip(flats, high, strict=True), 1):
        if not largest and kernels.nth_magnitude(flat, size):
            raise TallmasksError(
                f"pcb: task vector {task} of {len(flats)}: fewer than 1 % of {whole:,} weights moved, so that PCB "
                "clamps all of them to 0 (at the 99 % quantile); use another method, ties for instance"
            )
    clamped = Balance(low, high, low, high)

    def scores(part: slice) -> Vector:
        return clamped.scored([flat[part] for flat in flats])[1].clip(0)

    floor, top = kernels.nth_magnitudes(scores, size, [max(least + 1, 1), size]).T[..., None]
    return replace(clamped, floor=floor if least >= 0 else np.zeros_like(floor), top=top)


def _nth(flat: Vector, rank: int) -> np.float32:
    return kernels.nth_magnitude(flat, rank) if rank > 0 else np.float32(0)
