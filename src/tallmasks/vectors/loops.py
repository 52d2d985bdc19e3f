"""The compiled loops behind the kernels: numba functions over contiguous slices.

Fast-math stays off: float32 operations happen one by one in the order written here, and denormals count.
They are a module of their own because numba takes most of a second to import, which planning can do without.
"""

import numba
import numpy as np
from numba import njit

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_EXPONENT = np.uint32(0x7F800000)
_LOWER = np.uint32(0xFFFF)
_HALF = np.uint32(16)
_ROW = 32
_EACH_BYTE = np.uint64(0x0101010101010101)
_DIAGONAL = np.uint64(0x8040201008040201)
_CARRY = np.uint64(0x7F7F7F7F7F7F7F7F)
_GATHER = np.uint64(0x0102040810204080)


def threads() -> int:
    """How many threads numba would use: NUMBA_NUM_THREADS, or what `numba.set_num_threads` says."""
    return numba.get_num_threads()


@njit(nogil=True, cache=True)
def add_trimmed(total, row, limit):
    """float32 [n]: total += row where |row| >= limit."""
    for i in range(total.size):
        total[i] += row[i] if abs(row[i]) >= limit else np.float32(0)


@njit(nogil=True, cache=True)
def balance(total):
    """float32 [n]: how many values are above 0, less how many are below."""
    balance = 0
    for i in range(total.size):
        balance += (total[i] > 0) - (total[i] < 0)
    return balance


@njit(nogil=True, cache=True)
def elect(total, majority):
    """float32 [n] -> float32 [n]: the sign of each value, the majority where it is 0."""
    elected = np.empty_like(total)
    for i in range(total.size):
        sign = np.float32(total[i] > 0) - np.float32(total[i] < 0)
        elected[i] = majority if sign == 0 else sign
    return elected


@njit(nogil=True, cache=True)
def add_agreeing(total, agreeing, row, limit, elected):
    """float32 [n]: total += row and agreeing += 1 where |row| >= limit and row has the elected sign."""
    for i in range(total.size):
        kept = row[i] if abs(row[i]) >= limit else np.float32(0)
        agrees = kept * elected[i] > 0
        total[i] += kept if agrees else np.float32(0)
        agreeing[i] += np.float32(agrees)


@njit(nogil=True, cache=True)
def histogram_between(low, patterns, counts):
    """uint32 [n], int64 [m + 1]: counts += magnitudes below the pattern `low`, and each of the m patterns from it on.

    First over a row of values, without branches and so with vector instructions, to see whether any has to be counted.
    """
    width = np.uint32(counts.size - 1)
    for start in range(0, patterns.size, _ROW):
        row = patterns[start : start + _ROW]
        below = np.uint32(0)
        within = np.uint32(0)
        for i in range(row.size):
            magnitude = row[i] & _MAGNITUDE
            below += np.uint32(magnitude < low)
            within += np.uint32(np.uint32(magnitude - low) < width)
        counts[0] += below
        if within:
            for i in range(row.size):
                place = np.uint32((row[i] & _MAGNITUDE) - low)
                if place < width:
                    counts[place + np.uint32(1)] += 1


@njit(nogil=True, cache=True)
def histogram_upper(patterns, counts):
    """uint32 [n], int64 [65536]: counts += how often each upper half of a magnitude occurs."""
    for i in range(patterns.size):
        counts[(patterns[i] & _MAGNITUDE) >> _HALF] += 1


@njit(nogil=True, cache=True)
def histogram_lower(upper, patterns, counts):
    """uint32 [n], int64 [65536]: counts += how often each lower half, among the magnitudes with this upper half."""
    for i in range(patterns.size):
        magnitude = patterns[i] & _MAGNITUDE
        if magnitude >> _HALF == upper:
            counts[magnitude & _LOWER] += 1


@njit(nogil=True, cache=True)
def count_levels(task_vector, multi_task_vector, lambdas, levels):
    """float32 [n], [n], L-tuple -> uint8 [n]: for how many lambdas |tau| > lambda * |tau_MTL - tau|.

    The lambdas come as a tuple so that the compiler knows how many there are.
    """
    for i in range(levels.size):
        own = abs(task_vector[i])
        others = abs(multi_task_vector[i] - task_vector[i])
        level = np.int32(0)
        for factor in lambdas:
            level += np.int32(own > factor * others)
        levels[i] = level


@njit(nogil=True, cache=True)
def count_mask(task_vector, multi_task_vector, factor, counts):
    """float32 [n], [n], uint8 [n]: counts += |tau| > factor * |tau_MTL - tau|."""
    for i in range(counts.size):
        own = abs(task_vector[i])
        counts[i] += np.uint8(own > factor * abs(multi_task_vector[i] - task_vector[i]))


@njit(nogil=True, cache=True)
def add_kept(task_vector, multi_task_vector, lambdas, sums):
    """float32 [n], [n], L-tuple, float64 [L + 1]: sums += |tau_MTL| in the mask of each lambda; the last += |tau|."""
    for i in range(task_vector.size):
        own = abs(task_vector[i])
        merged = abs(multi_task_vector[i])
        others = abs(multi_task_vector[i] - task_vector[i])
        level = 0
        for factor in lambdas:
            level += own > factor * others
        for place in range(level):
            sums[place] += merged
        sums[len(lambdas)] += own


@njit(nogil=True, cache=True)
def finite(patterns):
    """uint32 [n], bit patterns of float32: whether none has all the bits of the exponent set."""
    found = np.uint32(0)
    for i in range(patterns.size):
        found |= np.uint32((patterns[i] & _EXPONENT) == _EXPONENT)
    return found == 0


@njit(nogil=True, cache=True)
def pack(words, planes):
    """uint64 [m], eight levels each -> uint8 [B, m]: one multiplication gathers a bit of eight bytes in a byte."""
    for bit in range(planes.shape[0]):
        for j in range(words.size):
            planes[bit, j] = (((words[j] >> np.uint64(bit)) & _EACH_BYTE) * _GATHER) >> np.uint64(56)


@njit(nogil=True, cache=True)
def add_bits(words, packed):
    """uint64 [m], eight counts each; uint8 [m]: counts += bits, eight at once (the inverse of the gathering)."""
    for j in range(words.size):
        spread = (np.uint64(packed[j]) * _EACH_BYTE) & _DIAGONAL
        words[j] += ((spread + _CARRY) >> np.uint64(7)) & _EACH_BYTE
