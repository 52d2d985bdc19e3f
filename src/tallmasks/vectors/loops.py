"""The compiled loops behind the kernels, in a separate module because numba is slow to import. Fast-math is off:
float32 operations happen in the order written here, and denormals are kept. Loops without branches compile to vector
instructions."""

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.compiled import compiled

Single = float | np.float32
Floats = NDArray[np.float32]
Words = NDArray[np.uint32]
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_LOWER = np.uint32(0xFFFF)
_HALF = np.uint32(16)
_ZERO, _ONE = np.float32(0), np.float32(1)
_BLOCK = 1 << 12


@compiled
def add_trimmed(row: Floats, limit: Single, total: Floats) -> None:
    """float32 [n] each: total += the values of row with |tau| >= limit."""
    for i in range(row.size):
        total[i] += row[i] if abs(row[i]) >= limit else _ZERO


@compiled
def add_agreeing(row: Floats, limit: Single, total: Floats, majority: Single, out: Floats, count: Floats) -> bool:
    """float32 [n] each: out += the values of row with |tau| >= limit and the sign of ``total``; count += 1 for each. If
    the total is 0, the majority's sign counts. Returns whether that happened for a kept value other than 0."""
    asked = np.int32(0)
    for i in range(row.size):
        kept = row[i] if abs(row[i]) >= limit else _ZERO
        asked |= np.int32((total[i] == _ZERO) & (kept != _ZERO))
        sign = total[i] if total[i] != _ZERO else majority
        agrees = ((kept > _ZERO) & (sign > _ZERO)) | ((kept < _ZERO) & (sign < _ZERO))
        out[i] += kept if agrees else _ZERO
        count[i] += _ONE if agrees else _ZERO
    return asked != 0


@compiled
def levels(row: Floats, merged: Floats, mask_lambdas: tuple[float, ...], out: NDArray[np.uint8]) -> None:
    """float32 [n], [n], L-tuple -> uint8 [n]: the number of lambdas with |tau| > lambda * |tau_MTL - tau|. The lambdas
    are a tuple so that their number is known at compile time."""
    for i in range(row.size):
        own, others, level = abs(row[i]), abs(merged[i] - row[i]), np.uint8(0)
        for mask_lambda in mask_lambdas:
            level += np.uint8(own > mask_lambda * others)
        out[i] = level


@compiled
def add_lengths(row: Floats, merged: Floats, lengths: NDArray[np.float64]) -> None:
    """float32 [n], [n] -> float64 [1179]: add |tau_MTL| to the class of the ratio |tau| / |tau_MTL - tau|: below 2^-10,
    then by the upper half of its bits. Weights with tau = 0 are in no mask."""
    last = np.int64(lengths.size - 1)
    for i in range(row.size):
        own, others = abs(row[i]), abs(merged[i] - row[i])
        if own > _ZERO:
            ratio = own / others if others > _ZERO else np.float32(np.inf)
            number = np.int64(np.float32(ratio).view(np.uint32) >> _HALF) - np.int64(0x3A7F)
            lengths[max(np.int64(0), min(number, last))] += abs(merged[i])


@compiled
def count_upper(patterns: Words, counts: Words) -> None:
    """uint32 [n], uint32 [65536]: add the upper halves of magnitudes to a histogram."""
    for i in range(patterns.size):
        counts[(patterns[i] & _MAGNITUDE) >> _HALF] += 1


@compiled
def count_lower(blocks: Words, counts: Words, upper: int) -> None:
    """uint32 [m, n], uint32 [65536]: add the lower halves of magnitudes with this upper half to a histogram. They are
    rare, so each block is first searched with vector instructions."""
    for block in range(blocks.shape[0]):
        here = False
        for i in range(blocks.shape[1]):
            here |= (blocks[block, i] & _MAGNITUDE) >> _HALF == upper
        if here:
            for i in range(blocks.shape[1]):
                if (blocks[block, i] & _MAGNITUDE) >> _HALF == upper:
                    counts[blocks[block, i] & _LOWER] += 1


@compiled
def low_rank_product(left: Floats, right: Floats, scale: Single, start: int, columns: int, out: Floats) -> None:
    """float32 [rows, r], [r * columns] -> [n]: values of the flattened scale * (left right), from ``start`` on. Each
    value is summed over r in order, so that the result depends on neither the piece nor the machine."""
    ranks = right.size // columns
    done = 0
    while done < out.size:
        row, first = (start + done) // columns, (start + done) % columns
        count = min(columns - first, out.size - done)
        part = out[done : done + count]
        part[:] = 0
        for k in range(ranks):
            factor, line = left[row, k], right[k * columns + first : k * columns + first + count]
            for j in range(count):
                part[j] += factor * line[j]
        for j in range(count):
            part[j] *= scale
        done += count


@compiled
def add_squares(values: Floats, ends: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    """float32 [n], int64 [rows] -> float64 [rows]: the sum of the squares of each row, in four sums, so that the
    order does not depend on the machine. ``ends``: where the rows end."""
    first = 0
    for row in range(ends.size):
        zero, one, two, three = 0.0, 0.0, 0.0, 0.0
        stop = ends[row]
        whole = stop - (stop - first) % 4
        for i in range(first, whole, 4):
            zero += np.float64(values[i]) * np.float64(values[i])
            one += np.float64(values[i + 1]) * np.float64(values[i + 1])
            two += np.float64(values[i + 2]) * np.float64(values[i + 2])
            three += np.float64(values[i + 3]) * np.float64(values[i + 3])
        for i in range(whole, stop):
            zero += np.float64(values[i]) * np.float64(values[i])
        out[row] = (zero + one) + (two + three)
        first = stop


@compiled
def round_at_random(
    values: Floats, steps: Floats, ends: NDArray[np.int64], drawn: Words, out: NDArray[np.int32]
) -> None:
    """float32 [n], float32 [rows], int64 [rows], uint32 [n] -> int32 [n]: the magnitude in steps, rounded up where the
    drawn number is below its fraction, with the sign of the value. ``ends``: where the rows end."""
    first = 0
    for row in range(ends.size):
        step = np.float64(steps[row])
        for i in range(first, ends[row]):
            quotient = abs(np.float64(values[i])) / step
            lower = np.floor(quotient)
            lower += np.float64(np.float64(drawn[i]) < 4294967296.0 * (quotient - lower))
            out[i] = np.int32(np.copysign(lower, np.float64(values[i])))
        first = ends[row]


@compiled
def add_at(theta: Floats, positions: Words, values: Floats, out: Floats) -> None:
    """float [n], uint32 [k], float32 [k] -> [n]: theta, plus the values at these ascending positions, written block by
    block while a block is in the cache."""
    number = 0
    for first in range(0, theta.size, _BLOCK):
        last = min(first + _BLOCK, theta.size)
        out[first:last] = theta[first:last]
        while number < positions.size and positions[number] < last:
            out[positions[number]] += values[number]
            number += 1


@compiled
def subtract_multiples(theta: Floats, integers: NDArray, steps: Floats, ends: NDArray[np.int64], out: Floats) -> None:
    """float [n], int [n], float32 [rows], int64 [rows] -> [n]: theta minus the integers times the step of their row.
    x - 0.0 is x for every x, but -0.0 + 0.0 is 0.0. ``ends``: where the rows end."""
    first = 0
    for row in range(ends.size):
        step = steps[row]
        for i in range(first, ends[row]):
            out[i] = theta[i] - np.float32(integers[i]) * step
        first = ends[row]


@compiled
def add_in_order(patterns: NDArray, differences: NDArray, sign: int, out: NDArray) -> None:
    """int [n] each: bit patterns of floats plus differences in the order of the floats. ``sign``: the number of the
    sign's bit; the patterns below it are turned for negative floats, see `updates.in_order`."""
    mask = (np.int64(1) << np.int64(sign)) - np.int64(1)
    for i in range(patterns.size):
        pattern = np.int64(patterns[i])
        out[i] = (pattern ^ ((pattern >> np.int64(sign)) & mask)) + np.int64(differences[i])  # wraps around
        moved = np.int64(out[i])
        out[i] = moved ^ ((moved >> np.int64(sign)) & mask)
