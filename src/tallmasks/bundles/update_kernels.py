"""The arithmetic of a bundle on the CPU, in pieces of tensors.

The update of a task is ``scale * tau`` where its bit is set, and +0.0 elsewhere.  The signs of scale and tau do not
matter; a weight is ``round(float32(theta_0) + update)``, so that a theta_0 of -0.0 without a bit becomes +0.0 (IEEE
754).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.dtypes import FLOATS
from tallmasks.vectors.checkpoints.float_bytes import widened
from tallmasks.vectors.kernels import read_only

PIECE = 1 << 16
"""Values that a thread takes at once; a multiple of 8."""
_NO_ROWS = np.ones(1, np.float32)

Raw = NDArray[np.uint8]


class PackedTau(NamedTuple):
    """One flattened tensor of tau_MTL as it is stored: F32, BF16, F16, or I8 with a scale for every ``row`` values."""

    raw: Raw
    dtype: str
    row_scales: NDArray[np.float32] = _NO_ROWS
    row: int = 1

    def piece(self, start: int, stop: int) -> NDArray[np.float32]:
        """Values start..stop, float32."""
        if self.dtype != "I8":
            width = FLOATS[self.dtype]
            return widened(self.raw[start * width : stop * width], self.dtype)
        first, last = start // self.row, -(-stop // self.row)
        scales = np.repeat(self.row_scales[first:last], self.row)[start - first * self.row :][: stop - start]
        return self.raw[start:stop].view(np.int8) * scales


def update_piece(tau: PackedTau, bits: Raw, scale: float, start: int, stop: int) -> NDArray[np.float32]:
    """The update of values start..stop of a tensor, float32; ``bits`` uint8 [ceil(P / 8)] of the whole tensor."""
    from tallmasks.bundles import update_loops

    if stop <= start:
        return np.empty(0, np.float32)
    first, out = start // 8, np.empty(stop - start, np.float32)
    held = np.unpackbits(bits[first : -(-stop // 8)], count=stop - 8 * first, bitorder="little")[start - 8 * first :]
    update_loops.masked(read_only(tau.piece(start, stop)), held, np.float32(scale), out)
    return out


def pieces(size: int) -> list[tuple[int, int]]:
    """Start and stop of every piece of ``size`` values."""
    return [(start, min(start + PIECE, size)) for start in range(0, size, PIECE)]


def quantise_rows(values: NDArray[np.float32], row: int, scales: NDArray[np.float32], out: NDArray[np.int8]) -> None:
    """float32 [rows * row] -> scales float32 [rows], the largest |value| / 127, and int8: value / scale to the nearest.

    Ties go to even, in float32 arithmetic; a row whose scale is 0 becomes zeros.
    """
    lines = values.reshape(len(scales), row)
    scales[:] = np.abs(lines).max(axis=1, initial=0) / np.float32(127)
    nearest = np.rint(lines / np.where(scales == 0, np.float32(1), scales)[:, None])
    nearest[scales == 0] = 0
    out[:] = nearest.clip(-127, 127).reshape(-1)
