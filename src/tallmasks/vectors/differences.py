"""Task vectors that are computed where they are asked for: theta_t - theta_0, piece by piece, never on disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.dtypes import FLOATS
from tallmasks.store.tensor_files import Layout
from tallmasks.vectors.checkpoints.float_bytes import Runs

Piece = Callable[[str, int, int], NDArray[np.float32]]
"""Values start..stop of a flattened tensor, float32, by the tensor's name."""


@dataclass(frozen=True)
class Lying:
    """Two models that lie in memory as values of one dtype: where each tensor begins, uint64 [tensors], and who is told
    how many values are read."""

    dtype: str
    after: NDArray[np.uint64]
    before: NDArray[np.uint64]
    told: Callable[[int], None]


@dataclass(frozen=True)
class Difference:
    """A flat task vector, float32 [P'], of which any slice may be asked for, from any thread.

    Attributes:
        layout: the tensors' names and shapes.
        piece: computes values of one tensor.
        lying: where the two models lie, for loops that need no piece of it.
    """

    layout: Layout
    piece: Piece
    lying: Lying | None = None

    @property
    def size(self) -> int:
        """P'."""
        return self.layout.size

    def __getitem__(self, part: slice) -> NDArray[np.float32]:
        names = self.layout.names
        found = [self.piece(names[place], start, stop) for place, start, stop in self._parts(part)]
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.float32), *found])

    def runs(self, parts: Sequence[slice]) -> Runs | None:
        """Where the values of slices lie; None where they have to be asked for."""
        if self.lying is None:
            return None
        place, start, stop = np.array([run for part in parts for run in self._parts(part)], np.int64).reshape(-1, 3).T
        at = (start * FLOATS[self.lying.dtype]).astype(np.uint64)
        self.lying.told(int((stop - start).sum()))
        return Runs(self.lying.dtype, self.lying.after[place] + at, self.lying.before[place] + at, stop - start)

    def _parts(self, part: slice) -> Iterator[tuple[int, int, int]]:
        """The number of each tensor that a slice holds values of, and which."""
        start, stop, step = part.indices(self.size)
        if step != 1:
            raise ValueError(f"slices of a task vector have no steps, found {part}")
        place = max(bisect_right(self.layout.offsets, start) - 1, 0)
        while start < stop:
            offset = self.layout.offsets[place]
            end = min(stop, offset + prod(self.layout.shapes[place]))
            if end > start:
                yield place, start - offset, end - offset
            start, place = max(end, start), place + 1
