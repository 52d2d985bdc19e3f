"""The compiled loops behind the kernels: numba functions over contiguous slices.

Fast-math stays off: float32 operations happen one by one in the order written here, and denormals count.
Sums of 32-bit integers are cast back at once: numba makes 64 bits of them, which takes vectors twice as long.
They are a module of their own because numba takes most of a second to import, which planning can do without.
"""

from typing import Any

import numba
import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_SIGNLESS = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
_LOWER = np.uint32(0xFFFF)
_HALF = np.uint32(16)
_RUN = 2048
"""Values that stay in the L1 cache while all tasks' are worked on; a multiple of 8."""
_EACH_BYTE = np.uint64(0x0101010101010101)
_DIAGONAL = np.uint64(0x8040201008040201)
_CARRY = np.uint64(0x7F7F7F7F7F7F7F7F)
_GATHER = np.uint64(0x0102040810204080)


def threads() -> int:
    """How many threads numba would use: NUMBA_NUM_THREADS, or what `numba.set_num_threads` says."""
    return numba.get_num_threads()


def _pointer(context, address):
    """A pointer to float32 from its address, uint64: rows may lie anywhere, and how many there are is no type."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.uint64), generate


_floats_at: Any = intrinsic(_pointer)


@njit
def _add_trimmed(total, row, limit):
    for i in range(total.size):
        total[i] += row[i] if abs(row[i]) >= limit else np.float32(0)


@njit(nogil=True, cache=True)
def trimmed_balance(addresses, limits, size):
    """uint64 [T], of rows float32 [size], float32 [T]: how many sums of |value| >= limit are above 0, less those below.

    A run of the sums stays in the L1 cache while all rows are added to it.
    """
    sums = np.empty(_RUN, np.float32)
    balance = 0
    for start in range(0, size, _RUN):
        total = sums[: min(_RUN, size - start)]
        total[:] = 0
        for task in range(limits.size):
            row = carray(_floats_at(addresses[task] + np.uint64(4 * start)), total.size)
            _add_trimmed(total, row, limits[task])
        for i in range(total.size):
            balance += (total[i] > 0) - (total[i] < 0)
    return balance


@njit
def _add_agreeing(total, agreeing, row, limit, elected):
    for i in range(total.size):
        kept = row[i] if abs(row[i]) >= limit else np.float32(0)
        agrees = np.float32(kept * elected[i]) > 0
        total[i] += kept if agrees else np.float32(0)
        agreeing[i] += np.float32(1) if agrees else np.float32(0)


@njit(nogil=True, cache=True)
def merge_ties(addresses, limits, majority, mean, out):
    """uint64 [T], of rows float32 [n], float32 [T] -> float32 [n]: the sum, or mean, of what has the elected sign.

    A run of each row is read from memory once, for the signs, and then from the L1 cache.
    """
    elected_run, agreeing_run = np.empty(_RUN, np.float32), np.empty(_RUN, np.float32)
    for start in range(0, out.size, _RUN):
        total = out[start : start + _RUN]
        elected, agreeing = elected_run[: total.size], agreeing_run[: total.size]
        total[:] = 0
        for task in range(limits.size):
            row = carray(_floats_at(addresses[task] + np.uint64(4 * start)), total.size)
            _add_trimmed(total, row, limits[task])
        for i in range(total.size):
            elected[i] = np.float32(1) if total[i] > 0 else np.float32(-1) if total[i] < 0 else majority
        total[:] = 0
        agreeing[:] = 0
        for task in range(limits.size):
            row = carray(_floats_at(addresses[task] + np.uint64(4 * start)), total.size)
            _add_agreeing(total, agreeing, row, limits[task], elected)
        if mean:
            for i in range(total.size):
                total[i] /= max(agreeing[i], np.float32(1))


@njit(nogil=True, cache=True)
def histogram_between(low, patterns, counts):
    """uint32 [n], int64 [m + 1]: counts += magnitudes below the pattern `low`, and each of the m patterns from it on.

    A run of values at a time, first without branches and so with vector instructions, which leaves a byte for each
    value that has to be counted; then eight bytes are looked at at once, most of which are all 0.
    """
    width = np.uint32(counts.size - 1)
    held = np.zeros(_RUN, np.uint8)
    for start in range(0, patterns.size, _RUN):
        run = patterns[start : start + _RUN]
        held[run.size :] = 0
        below = np.int32(0)
        for i in range(run.size):
            magnitude = np.uint32(run[i] & _MAGNITUDE)
            below = np.int32(below + np.int32(magnitude < low))
            held[i] = np.uint8(np.uint32(magnitude - low) < width)
        counts[0] += below
        words = held.view(np.uint64)
        for j in range(words.size):
            if words[j]:
                for i in range(8 * j, 8 * j + 8):
                    if held[i]:
                        counts[np.uint32((run[i] & _MAGNITUDE) - low) + np.uint32(1)] += 1


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
    """int32 [n], bit patterns of float32: whether none has all the bits of the exponent set."""
    largest = np.int32(0)
    for i in range(patterns.size):
        largest = max(largest, np.int32(patterns[i] & _SIGNLESS))
    return largest < _INFINITY


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
