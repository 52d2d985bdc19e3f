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
def add_trimmed(row, limit, total, high, low):
    """float32 [n] each: add a row's values with |tau| >= limit to ``total``, those above 0 to ``high``, those below to
    ``low``."""
    for i in range(row.size):
        kept = row[i] if abs(row[i]) >= limit else _ZERO
        total[i] += kept
        high[i] += max(kept, _ZERO)
        low[i] += min(kept, _ZERO)


@njit(nogil=True, cache=True)
def count_trimmed(row, limit, risen, fallen):
    """The same, counting the values above 0 and those below."""
    for i in range(row.size):
        kept = row[i] if abs(row[i]) >= limit else _ZERO
        risen[i] += np.float32(kept > _ZERO)
        fallen[i] += np.float32(kept < _ZERO)


@njit(nogil=True, cache=True)
def elect(total, high, low, risen, fallen, majority, out):
    """float32 [n] each: ``out`` = ``high`` / ``risen`` where the total is above 0, ``low`` / ``fallen`` where it is
    below, the majority's where it is 0; a count of 0 is none to divide by.

    Returns how many totals are above 0 less how many below, and whether any is 0 that values were added to.
    """
    balance, undecided = np.int64(0), np.int32(0)
    for i in range(out.size):
        up, down, zero = total[i] > _ZERO, total[i] < _ZERO, total[i] == _ZERO
        balance += np.int32(up) - np.int32(down)
        undecided |= np.int32(zero & ((high[i] > _ZERO) | (low[i] < _ZERO)))
        up, down = up | (zero & (majority > _ZERO)), down | (zero & (majority < _ZERO))
        value = high[i] if up else (low[i] if down else _ZERO)
        count = risen[i] if up else (fallen[i] if down else _ZERO)
        out[i] = value / max(count, _ONE)
    return balance, undecided != 0


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
def add_kept(row, merged, level, sums):
    """float32 [n], [n], uint8 [n], float64 [L + 1]: sums += |tau_MTL| in the mask of each lambda; the last += |tau|."""
    for i in range(row.size):
        value = abs(merged[i])
        for place in range(level[i]):
            sums[place] += value
        sums[-1] += abs(row[i])


@njit(nogil=True, cache=True)
def count_upper(patterns, counts):
    """uint32 [n], uint32 [65536]: counts += how often each upper half of a magnitude occurs."""
    for i in range(patterns.size):
        counts[(patterns[i] & _MAGNITUDE) >> _HALF] += 1


@njit(nogil=True, cache=True)
def count_lower(patterns, counts, upper):
    """uint32 [n], uint32 [65536]: counts += how often each lower half among the magnitudes with this upper half."""
    for i in range(patterns.size):
        magnitude = patterns[i] & _MAGNITUDE
        if magnitude >> _HALF == upper:
            counts[magnitude & _LOWER] += 1


@njit(nogil=True, cache=True)
def largest_magnitude(values):
    """float32 [n] -> the largest |value|, 0 of none; infinity or NaN where there is one."""
    patterns = values.view(np.uint32)
    largest = np.uint32(0)
    for i in range(patterns.size):
        largest = max(largest, np.uint32(patterns[i] & _MAGNITUDE))
    return np.uint32(largest).view(np.float32)
