"""What one piece of a task's tensor adds to theta_0, in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.streams import Integers
from tallmasks.io.dtypes import DTYPES
from tallmasks.vectors.checkpoints.float_bytes import rounded, widened
from tallmasks.vectors.multiples import spread

Coding = Literal["multiples", "differences"]
"""The integers of a bundle: multiples of steps (`vectors.multiples`), or differences of bit patterns."""


@dataclass(frozen=True, eq=False)
class Update:
    """The update of a piece of n values.

    Attributes:
        size: n.
        positions: those of the k values that change, uint32 [k]; None if ``values`` has all.
        values: float32 [k] to add; or integers [n] or [k], see ``are_differences`` and ``steps``.
        are_differences: ``values`` are added to the bit patterns of theta_0, as integers in the order of the floats.
        steps: float32 [rows]; an update is minus the integer times the step of its row.
        columns, start: the length of a row, and the position of the first value in the tensor.
    """

    size: int
    positions: NDArray[np.uint32] | None
    values: NDArray
    are_differences: bool = False
    steps: NDArray[np.float32] | None = None
    columns: int = 1
    start: int = 0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.positions, self.values, self.steps) if array is not None)

    def apply(self, theta: NDArray[np.uint8], dtype: str, out: NDArray[np.uint8]) -> None:
        """Writes theta_0 plus the update, rounded to a float dtype, as bytes. ``theta``: the bytes of theta_0 in that
        dtype. Values that do not change keep all of their bits."""
        stored, result = (array.view(DTYPES[dtype].numpy) for array in (theta, out))
        if self.positions is None:
            result[:] = self._changed(stored, dtype)
        else:
            result[:] = stored
            result[self.positions] = self._changed(result[self.positions], dtype)

    def added(self, theta: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
        """The update, float32 [n]; of differences, the restored weights minus theta_0."""
        if not self.are_differences:
            theta, dtype = np.zeros(self.size, np.float32).view(np.uint8), "F32"
        restored = np.empty_like(theta)
        self.apply(theta, dtype, restored)
        return widened(restored, dtype) - widened(theta, dtype)

    def _changed(self, stored: NDArray, dtype: str) -> NDArray:
        if self.are_differences:
            signed = stored.view(f"i{stored.itemsize}")
            return in_order(in_order(signed) + self.values).view(stored.dtype)
        wide = stored if dtype == "F64" else widened(stored.view(np.uint8), dtype)
        if self.steps is None:
            changed = wide + self.values
        else:
            # x - 0.0 is x for every x, but -0.0 + 0.0 is 0.0
            changed = wide - self.values.astype(np.float32) * spread(self.steps, self.columns, self.start, self.size)
        return rounded(changed, dtype).view(stored.dtype)


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
