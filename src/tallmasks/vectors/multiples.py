"""Tensors as integer multiples of steps, in pieces of `PIECE` values.

A piece has a step of its own, which is stored. In a tensor of two or more dimensions, the step of a row can be larger:
a fraction of the root mean square of theta_0 in that row, which whoever reads the integers has, too. Rows go along the
first axis that is longer than 1. Where a piece divides a row, each part counts as a row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from tallmasks.vectors.kernels import Vector, read_only

PIECE = 1 << 18
Steps = NDArray[np.float32]
"""The step of each row of a piece, [rows], or of all values, [1]."""


class Quantized(NamedTuple):
    """A piece of a tensor: ``integers``, int32 [n], times ``steps``. ``scale``: the piece's own step, above 0."""

    integers: NDArray[np.int32]
    scale: np.float32
    steps: Steps


def piece_count(size: int) -> int:
    return -(-size // PIECE)


def piece(size: int, number: int) -> tuple[int, int]:
    """Start and stop of a piece of a flattened tensor."""
    return number * PIECE, min((number + 1) * PIECE, size)


def pieces(size: int) -> list[tuple[int, int]]:
    """Start and stop of each piece of a flattened tensor."""
    return [piece(size, number) for number in range(piece_count(size))]


def columns_of(shape: tuple[int, ...]) -> int:
    """The length of a row; the whole length of a vector."""
    long = [length for length in shape if length > 1]
    return math.prod(long[1:] if len(long) > 1 else long)


def is_vector(shape: tuple[int, ...]) -> bool:
    """Whether at most one axis is longer than 1."""
    return sum(length > 1 for length in shape) < 2


def sum_of_squares(values: Vector, ends: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """float64 [rows]; ``ends``: where the rows end (default: one row). The same bits on every machine."""
    from tallmasks.vectors import loops  # slow: imports numba

    ends = np.array([values.size]) if ends is None else ends
    sums = np.empty(ends.size)
    loops.add_squares(read_only(values), ends, sums)
    return sums


def root_mean_square(values: Vector) -> float:
    return math.sqrt(sum_of_squares(values)[0] / values.size)


def row_rms(theta: Vector, shape: tuple[int, ...], start: int) -> NDArray[np.float64]:
    """The root mean square of each row of a piece, float64 [rows]; 0 for a vector. ``theta``: float32 [n] from value
    ``start`` of the tensor on. The same bits on every machine."""
    if is_vector(shape):
        return np.zeros(1)
    ends = _row_ends(columns_of(shape), start, theta.size)
    return np.sqrt(sum_of_squares(theta, ends) / np.diff(ends, prepend=0))


def steps_of(rms: NDArray[np.float64], scale: np.float32, row_step: float) -> Steps:
    """max(row_step * RMS(row of theta_0), scale) for each row of a piece, float32 [rows]. ``rms``: of :func:`row_rms`.
    Both the writer and the reader of a bundle call it."""
    return np.maximum(row_step * rms, scale).astype(np.float32)


def spread(steps: Steps, columns: int, start: int, size: int) -> NDArray[np.float32]:
    """The step of each value of a piece, float32 [n]."""
    if steps.size == 1:
        return np.broadcast_to(steps, size)
    return np.repeat(steps, np.diff(_row_ends(columns, start, size), prepend=0))


def ends_of_steps(steps: Steps, columns: int, start: int, size: int) -> NDArray[np.int64]:
    """Where the values of each step end in a piece, as many as there are steps."""
    return _row_ends(columns, start, size) if steps.size > 1 else np.array([size])


def _row_ends(columns: int, start: int, size: int) -> NDArray[np.int64]:
    """Where the rows of a piece end, [rows]."""
    rows = -(-(start % columns + size) // columns)
    return np.minimum(np.arange(1, rows + 1) * columns - start % columns, size)


def rounded_at_random(values: Vector, steps: Steps, shape: tuple[int, ...], start: int, name: str) -> NDArray[np.int32]:
    """sign(x) (floor(|x| / step) + B) for each value x of a piece, where B is 1 with probability frac(|x| / step), so
    that the mean is x / step. The random numbers follow from the values of the piece and from the tensor's name, by
    the counter-based generator Philox, whose stream NumPy never changes (NEP 19).
    """
    from tallmasks.vectors import loops

    hashed = xxhash.xxh3_128(name.encode())
    hashed.update(values.data)
    random = np.random.Philox(key=hashed.intdigest()).random_raw(-(-values.size // 2))
    drawn = random.astype("<u8", copy=False).view("<u4")
    integers = np.empty(values.size, np.int32)
    ends = ends_of_steps(steps, columns_of(shape), start, values.size)
    loops.round_at_random(read_only(values), steps, ends, drawn, integers)
    return integers


def rounded_to_nearest(values: Vector, steps_per_rms: float) -> Quantized:
    """A piece with its root mean square divided by ``steps_per_rms`` as step."""
    scale = np.float32(root_mean_square(values) / steps_per_rms) or np.float32(1)
    return Quantized(np.rint(values / np.float64(scale)).astype(np.int32), scale, np.array([scale]))
