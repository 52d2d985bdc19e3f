"""One tensor of tau_MTL as stored in a bundle, and its masked sum with theta_0, on the CPU.

A task's update is ``scale * tau`` where its bit is set and +0.0 elsewhere, whatever the signs of scale and tau. Weights
are ``round(float32(theta_0) + update)``, so a theta_0 of -0.0 whose bit is 0 becomes +0.0 (IEEE 754).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.dtypes import FLOATS
from tallmasks.vectors.checkpoints.float_bytes import widened
from tallmasks.vectors.kernels import read_only

PIECE = 1 << 20
"""Values that a thread processes at once; a multiple of 8."""
_NO_ROWS = np.ones(1, np.float32)

Raw = NDArray[np.uint8]


class PackedTau(NamedTuple):
    """A flattened tensor: F32, BF16, F16, or I8 with one scale per ``row`` values."""

    raw: Raw
    dtype: str
    row_scales: NDArray[np.float32] = _NO_ROWS
    row: int = 1

    def piece(self, start: int, stop: int) -> NDArray[np.float32]:
        if self.dtype != "I8":
            width = FLOATS[self.dtype]
            return widened(self.raw[start * width : stop * width], self.dtype)
        first, last = start // self.row, -(-stop // self.row)
        scales = np.repeat(self.row_scales[first:last], self.row)[start - first * self.row :][: stop - start]
        return self.raw[start:stop].view(np.int8) * scales

    def add(self, theta: NDArray, start: int, bits: Raw, scale: float, out: NDArray[np.float32]) -> None:
        """Writes theta + update to ``out``, float32 [n], from value ``start`` (a multiple of 8) of the tensor on.
        ``bits``: the mask of the whole tensor, uint8 [ceil(P / 8)]."""
        from tallmasks.vectors import loops  # imports numba

        stop, words = start + out.size, np.zeros(-(-out.size // 32), np.uint32)
        words.view(np.uint8)[: -(-out.size // 8)] = bits[start // 8 : -(-stop // 8)]
        half = self.dtype == "BF16"
        tau = self.raw[2 * start : 2 * stop].view(np.uint16) if half else self.piece(start, stop).view(np.int32)
        loops.add_masked(read_only(theta), read_only(tau), 16 * half, words, np.float32(scale), out)


def pieces(size: int) -> list[tuple[int, int]]:
    """Start and stop of every piece."""
    return [(start, min(start + PIECE, size)) for start in range(0, size, PIECE)]
