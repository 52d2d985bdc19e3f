"""The compiled loops behind the kernels, in a separate module because numba is slow to import. Fast-math is off:
float32 operations happen in the order written here, and denormals are kept. Loops without branches compile to vector
instructions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.compiled import compiled

Single = float | np.float32
Floats = NDArray[np.float32]
Words = NDArray[np.uint32]
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_LOWER = np.uint32(0xFFFF)
_HALF = np.uint32(16)
_BIT = np.int32(1)
_ZERO, _ONE = np.float32(0), np.float32(1)


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
def max_magnitude(values: Floats) -> np.float32:
    """float32 [n] -> the largest |value|, 0 if n = 0, infinity or NaN if there is any."""
    patterns = values.view(np.uint32)
    largest = np.uint32(0)
    for i in range(patterns.size):
        largest = max(largest, np.uint32(patterns[i] & _MAGNITUDE))
    return np.uint32(largest).view(np.float32)


@compiled
def add_masked(theta: Floats, tau: NDArray[Any], shift: int, words: Words, scale: Single, out: Floats) -> None:
    """float32 [n], bits [n], uint32 [ceil(n / 32)] -> float32 [n]: theta + scale * tau where the bit is 1, else + 0.0.

    ``tau``: float32 bits as int32 with shift 0, or bfloat16 bits as uint16 with shift 16. Bit i of word j, from the
    lowest, is for value 32 j + i.
    """
    for start in range(0, out.size, 32):
        word = np.int32(words[start // 32])
        # a length known at compile time would be unrolled into 32 steps instead of vectorised
        own, update, total = theta[start : start + 32], tau[start : start + 32], out[start : start + 32]
        for i in range(total.size):
            held = np.int32(-np.int32((word >> np.int32(i)) & np.int32(1)))
            value = np.int32(np.int32(update[i]) << np.int32(shift)).view(np.float32)
            total[i] = own[i] + np.int32(np.float32(scale * value).view(np.int32) & held).view(np.float32)


@compiled
def add_levels(
    theta: Floats,
    planes: Words,
    levels: Floats,
    scales: Floats,
    group: int,
    first: int,
    mask: Words,
    factor: np.float32,
    out: Floats,
) -> None:
    """float32 [n], uint32 [b, ceil(n / 32)], float32 [2^b], float32 [groups], uint32 [ceil(n / 32)] -> float32 [n]:
    theta + factor * level * scale where the mask's bit is 1, else + 0.0.

    Bit i (lowest first) of word j of plane k is bit k of the number of the level of value 32 j + i; the mask is packed
    likewise. ``first``: the index of the first value among the values that are grouped. Up to 8 levels are selected bit
    by bit with vector instructions, which is faster than a table.
    """
    bits, numbers, eight = planes.shape[0], np.empty(32, np.int32), np.empty(8, np.float32)
    for number in range(8):
        eight[number] = levels[number % levels.size]
    a, b, c, d, e, f, g, h = eight
    row, left, start = first // group, group - first % group, 0
    while start < out.size:
        column, shift = start // 32, np.int32(start % 32)
        stop = min(32 * column + 32, start + left, out.size)
        scale, held = scales[row], np.int32(mask[column]) >> shift
        own, total = theta[start:stop], out[start:stop]
        low, high = np.int32(planes[0, column]) >> shift, np.int32(planes[min(2, bits - 1), column]) >> shift
        middle = np.int32(planes[min(1, bits - 1), column]) >> shift
        if bits > 3:
            numbers[:] = 0
            for k in range(bits):
                word = np.int32(planes[k, column]) >> shift
                for i in range(32):
                    numbers[i] |= ((word >> np.int32(i)) & _BIT) << np.int32(k)
        for i in range(total.size):
            if bits > 3:
                level = levels[numbers[i]]
            else:
                one, two = (low >> np.int32(i)) & _BIT != 0, (middle >> np.int32(i)) & _BIT != 0
                below = (d if one else c) if two else (b if one else a)
                above = (h if one else g) if two else (f if one else e)
                level = above if (high >> np.int32(i)) & _BIT != 0 else below
            pattern = np.float32(factor * np.float32(level * scale)).view(np.int32)
            total[i] = own[i] + np.int32(pattern & -np.int32((held >> np.int32(i)) & _BIT)).view(np.float32)
        start, left = stop, left - total.size
        if left == 0:
            row, left = row + 1, group


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
