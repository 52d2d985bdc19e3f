"""Task vectors that are computed on demand, piece by piece, and never stored."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import Layout

# (tensor name, start, stop) -> those values of the flattened tensor
ReadPiece = Callable[[str, int, int], NDArray[np.float32]]


@dataclass(frozen=True)
class LazyVector:
    """A flat task vector, float32 [P'], with slices computed by ``piece``; thread-safe."""

    layout: Layout
    piece: ReadPiece

    @property
    def size(self) -> int:
        return self.layout.size

    def __getitem__(self, part: slice) -> NDArray[np.float32]:
        start, stop, _ = part.indices(self.size)
        pieces = [np.empty(0, np.float32)]
        index = max(bisect_right(self.layout.offsets, start) - 1, 0)
        while start < stop:
            offset = self.layout.offsets[index]
            end = min(stop, offset + prod(self.layout.shapes[index]))
            if end > start:
                pieces.append(self.piece(self.layout.names[index], start - offset, end - offset))
            start, index = max(end, start), index + 1
        return pieces[1] if len(pieces) == 2 else np.concatenate(pieces)
