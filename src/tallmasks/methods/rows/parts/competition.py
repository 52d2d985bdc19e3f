"""How parameters compete (Du et al. 2024, PCB-Merging): what each task's value at a weight counts beside others'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.errors import TallmasksError
from tallmasks.vectors import kernels
from tallmasks.vectors.kernels import Vector
from tallmasks.vectors.task_vectors import TaskVector

CLAMPED = 0.01


@dataclass(frozen=True)
class Balance:
    """float32 [T, 1] each: where magnitudes are clamped, and between what scores count."""

    low: Vector
    high: Vector
    floor: Vector
    top: Vector

    def weighed(self, rows: Sequence[Vector]) -> tuple[Vector, Vector]:
        """Clamped values, and what each counts, from 0 at the floor to 1 at the top; float32 [T, n] each."""
        values, scores = self.scored(rows)
        return values, from_0_to_1(scores.clip(self.floor, self.top), self.floor, self.top)

    def scored(self, rows: Sequence[Vector]) -> tuple[Vector, Vector]:
        """Clamped values and exp(T n_i^2) * sum_j tanh(n_i n_j), float32 [T, n], n being magnitudes from 0 to 1."""
        stacked = np.stack(rows)
        size, signs = np.clip(abs(stacked), self.low, self.high), np.sign(stacked)
        unit = signs * from_0_to_1(size, self.low, self.high)
        agreeing = np.stack([np.tanh(own * unit).sum(axis=0) for own in unit])
        return signs * size, np.exp(np.float32(len(rows)) * unit**2) * agreeing


def from_0_to_1(values: Vector, low: Vector, high: Vector) -> Vector:
    """Values between low and high, [T, n], as shares of the way."""
    return np.divide(values - low, np.where(high > low, high - low, np.float32(1)), dtype=np.float32)


def balance_of(task_vectors: Sequence[TaskVector], ratio: float) -> Balance:
    """Clamps from each task's values, then floor and top of its scores; shares of all parameters, frozen ones too.

    Raises:
        TallmasksError: a task moved so few weights that it would be clamped to 0.
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
    known = Balance(low, high, low, high)

    def scores(part: slice) -> Vector:
        return known.scored([flat[part] for flat in flats])[1].clip(0)

    floor, top = nth_of_rows(scores, size, [max(least + 1, 1), size]).T[..., None]
    return replace(known, floor=floor if least >= 0 else np.zeros_like(floor), top=top)


def _nth(flat: Vector, rank: int) -> np.float32:
    return kernels.nth_magnitude(flat, rank) if rank > 0 else np.float32(0)


def nth_of_rows(rows: Callable[[slice], Vector], size: int, ranks: Sequence[int]) -> NDArray[np.float32]:
    """The exact n-th smallest values of T vectors of ``size`` values from 0 up, float32 [T, len(ranks)].

    ``rows`` computes a slice of all of them, float32 [T, n]; in two passes, one for the upper half of the bits.
    """

    def count(histogram: Callable[[NDArray[np.uint32]], NDArray[np.int64]]) -> NDArray[np.int64]:
        def work(share: slice) -> NDArray[np.int64]:
            parts = range(share.start, share.stop, kernels.PIECE)
            found = (histogram(rows(slice(at, min(at + kernels.PIECE, share.stop))).view(np.uint32)) for at in parts)
            return reduce(np.add, found)

        return np.cumsum(sum(kernels.in_pieces(size, work, -(-size // kernels.threads()))), axis=-1)

    def upper_halves(patterns: NDArray[np.uint32]) -> NDArray[np.int64]:
        return np.stack([np.bincount(row >> 16, minlength=1 << 16) for row in patterns])

    def lower_halves(patterns: NDArray[np.uint32]) -> NDArray[np.int64]:
        found = [[np.bincount(row[row >> 16 == half] & 0xFFFF, minlength=1 << 16) for half in halves]
                 for row, halves in zip(patterns, upper, strict=True)]  # fmt: skip
        return np.array(found)

    ends = count(upper_halves)
    upper = np.stack([np.searchsorted(row, ranks) for row in ends])
    below = np.take_along_axis(np.pad(ends, ((0, 0), (1, 0))), upper, axis=1)
    ends = count(lower_halves)
    lower = [[np.searchsorted(row, n - less) for row, n, less in zip(*of_task, strict=True)]
             for of_task in zip(ends, [ranks] * len(ends), below, strict=True)]  # fmt: skip
    return (upper.astype(np.uint32) << 16 | np.array(lower, np.uint32)).view(np.float32)
