"""The compiled loops behind the kernels: plain numba over contiguous slices.

Fast-math stays off: float32 operations happen one by one in the order written here, and denormals count.  Loops have no
branches, so that compilers make vector instructions of them.  A module of its own, because numba takes most of a second
to import, which planning can do without.
"""

import numpy as np
from numba import njit

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_LOWER = np.uint32(0xFFFF)
_HALF = np.uint32(16)
_ZERO, _ONE = np.float32(0), np.float32(1)


@njit(nogil=True, cache=True)
def add_trimmed(row, limit, total):
    """float32 [n] each: total += a row's values with |tau| >= limit."""
    for i in range(row.size):
        total[i] += row[i] if abs(row[i]) >= limit else _ZERO


@njit(nogil=True, cache=True)
def add_agreeing(row, limit, total, majority, out, count):
    """float32 [n] each: out += a row's values with |tau| >= limit that have the sign of ``total``.  Where the total is
    0, the majority's sign counts; count += 1 for each.

    Returns whether the majority was asked for: some total is 0, and the row has a value there.
    """
    asked = np.int32(0)
    for i in range(row.size):
        kept = row[i] if abs(row[i]) >= limit else _ZERO
        asked |= np.int32((total[i] == _ZERO) & (kept != _ZERO))
        sign = total[i] if total[i] != _ZERO else majority
        agrees = ((kept > _ZERO) & (sign > _ZERO)) | ((kept < _ZERO) & (sign < _ZERO))
        out[i] += kept if agrees else _ZERO
        count[i] += _ONE if agrees else _ZERO
    return asked != 0


@njit(nogil=True, cache=True)
def levels(row, merged, lambdas, out):
    """float32 [n], [n], L-tuple -> uint8 [n]: for how many lambdas |tau| > lambda * |tau_MTL - tau|.

    The lambdas come as a tuple so that the compiler knows how many there are.
    """
    for i in range(row.size):
        own, others, level = abs(row[i]), abs(merged[i] - row[i]), np.uint8(0)
        for factor in lambdas:
            level += np.uint8(own > factor * others)
        out[i] = level


@njit(nogil=True, cache=True)
def count_upper(patterns, counts):
    """uint32 [n], uint32 [65536]: counts += how often each upper half of a magnitude occurs."""
    for i in range(patterns.size):
        counts[(patterns[i] & _MAGNITUDE) >> _HALF] += 1


@njit(nogil=True, cache=True)
def count_lower(blocks, counts, upper):
    """uint32 [m, n], uint32 [65536]: counts += how often each lower half among the magnitudes with this upper half.

    Few have it: a block without one takes vector instructions alone.
    """
    for block in range(blocks.shape[0]):
        here = False
        for i in range(blocks.shape[1]):
            here |= (blocks[block, i] & _MAGNITUDE) >> _HALF == upper
        if here:
            for i in range(blocks.shape[1]):
                if (blocks[block, i] & _MAGNITUDE) >> _HALF == upper:
                    counts[blocks[block, i] & _LOWER] += 1


@njit(nogil=True, cache=True)
def max_magnitude(values):
    """float32 [n] -> the largest |value|, 0 of none; infinity or NaN where there is one."""
    patterns = values.view(np.uint32)
    largest = np.uint32(0)
    for i in range(patterns.size):
        largest = max(largest, np.uint32(patterns[i] & _MAGNITUDE))
    return np.uint32(largest).view(np.float32)


@njit(nogil=True, cache=True)
def add_masked(theta, tau, shift, words, scale, out):
    """float32 [n], bits [n], uint32 [ceil(n / 32)] -> float32 [n]: theta + scale * tau where the bit is 1, else + 0.0.

    ``tau``: the bits of float32 as int32, with a shift of 0, or of bfloat16 as uint16, with one of 16.  Bit i of word
    j, from the lowest, is of value 32 j + i.
    """
    for start in range(0, out.size, 32):
        word = np.int32(words[start // 32])
        # with a count that the compiler knew it would write 32 steps instead of vector instructions
        own, update, total = theta[start : start + 32], tau[start : start + 32], out[start : start + 32]
        for i in range(total.size):
            held = np.int32(-np.int32((word >> np.int32(i)) & np.int32(1)))
            value = np.int32(np.int32(update[i]) << np.int32(shift)).view(np.float32)
            total[i] = own[i] + np.int32(np.float32(scale * value).view(np.int32) & held).view(np.float32)


@njit(nogil=True, cache=True)
def low_rank_product(left, right, scale, start, columns, out):
    """float32 [rows, r], [r * columns] -> [n]: the values from ``start`` on of the flattened scale * (left right).

    Each value is summed over r in order, so the result depends on neither the cut nor the machine.
    """
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
