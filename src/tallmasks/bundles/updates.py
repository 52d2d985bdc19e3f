"""What one piece of a task's tensor adds to theta_0, in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.streams import Integers
from tallmasks.io.dtypes import DTYPES
from tallmasks.vectors.checkpoints.float_bytes import rounded, widened
from tallmasks.vectors.kernels import read_only
from tallmasks.vectors.multiples import ends_of_steps

Coding = Literal["multiples", "bit_deltas"]
"""The integers of a bundle: multiples of steps (`vectors.multiples`), or differences of bit patterns."""


@dataclass(frozen=True, eq=False)
class Update:
    """The update of a piece of n values.

    Attributes:
        size: n.
        positions: those of the k values that change, uint32 [k]; None if ``values`` has all.
        values: float32 [k] to add; or integers [n] or [k], see ``are_bit_deltas`` and ``steps``.
        are_bit_deltas: ``values`` are added to the bit patterns of theta_0, as integers in the order of the floats.
        steps: float32 [rows]; an update is minus the integer times the step of its row.
        columns, start: the length of a row, and the position of the first value in the tensor.
    """

    size: int
    positions: NDArray[np.uint32] | None
    values: NDArray
    are_bit_deltas: bool = False
    steps: NDArray[np.float32] | None = None
    columns: int = 1
    start: int = 0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.positions, self.values, self.steps) if array is not None)

    def apply(self, theta: NDArray[np.uint8], dtype: str, out: NDArray[np.uint8]) -> None:
        """Writes theta_0 plus the update, rounded to a float dtype, as bytes. ``theta``: the bytes of theta_0 in that
        dtype. Values that do not change keep all of their bits."""
        from tallmasks.vectors import loops  # slow: imports numba

        width, is_plain = DTYPES[dtype].width, dtype in ("F32", "F64")
        kind = np.dtype(f"i{width}") if self.are_bit_deltas else DTYPES[dtype].numpy
        stored, result, values = read_only(theta.view(kind)), out.view(kind), read_only(self.values)
        if self.steps is not None:
            wide = stored if is_plain else widened(theta, dtype)
            changed = result if is_plain else np.empty(self.size, np.float32)
            ends = ends_of_steps(self.steps, self.columns, self.start, self.size)
            loops.subtract_multiples(wide, values, read_only(self.steps), ends, changed)
            if not is_plain:
                out[:] = rounded(changed, dtype)
        elif self.positions is None:
            loops.add_in_order(stored, values, 8 * width - 1, result)
        elif is_plain and not self.are_bit_deltas:
            loops.add_at(stored, read_only(self.positions), values, result)
        else:
            result[:] = stored
            few = result[self.positions]
            if self.are_bit_deltas:
                result[self.positions] = in_order(in_order(few) + values)
            else:
                result[self.positions] = rounded(widened(few, dtype) + values, dtype).view(kind)

    def added(self, theta: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
        """The update, float32 [n]; of differences, the restored weights minus theta_0."""
        if not self.are_bit_deltas:
            theta, dtype = np.zeros(self.size, np.float32).view(np.uint8), "F32"
        restored = np.empty_like(theta)
        self.apply(theta, dtype, restored)
        return widened(restored, dtype) - widened(theta, dtype)


def in_order(patterns: Any) -> Any:
    """The signed bit patterns of floats as integers in the order of the floats, or back. For torch tensors, too."""
    bits = 8 * patterns.itemsize
    return patterns ^ ((patterns >> (bits - 1)) & (2 ** (bits - 1) - 1))


def update_of_multiples(integers: Integers, steps: NDArray[np.float32], columns: int, start: int, size: int) -> Update:
    positions, values = integers
    if positions is None:
        negative = -values.astype(np.int64)
        return Update(size, None, _narrowest(negative), False, steps, columns, start)
    rows = (start % columns + positions) // columns if steps.size > 1 else 0
    return Update(size, positions, values.astype(np.float32) * steps[rows])


def _narrowest(integers: NDArray[np.int64]) -> NDArray:
    largest = max(integers.max(initial=0), -integers.min(initial=0))
    return integers.astype(
        next(dtype for dtype in (np.int8, np.int16, np.int32, np.int64) if largest <= np.iinfo(dtype).max)
    )
