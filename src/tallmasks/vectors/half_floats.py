"""The compiled loops between stored floats and float32: float16 and bfloat16 as bits, uint16, in contiguous slices.

All are exact, or round to nearest, ties to even, as IEEE 754 and torch do; NaN stays NaN.  A module of its own, as
:mod:`tallmasks.vectors.loops` is, because numba takes most of a second to import.

The arithmetic is on int32 and without branches, and none of its numbers is a denormal of float32: compilers make vector
instructions of that, and processors are slow on denormals.  ``-int32(condition)`` is a mask of 32 ones or zeros.
"""

import numpy as np
from numba import carray, njit

from tallmasks.vectors import lanes, loops

FITS, NOT_FINITE, TOO_LARGE = 0, 1, 2
"""What narrowing answers: all is well; a value was NaN or infinite; a finite one became infinite."""

_ONE = np.int32(1)
_THIRTEEN = np.int32(13)
_SIXTEEN = np.int32(16)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
_QUIET = np.int32(0x400000)
FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
"""What lies at an address."""

_RUN = 8192
_HALF_SIGN = np.int32(0x8000)
_HALF_MAGNITUDE = np.int32(0x7FFF)
_HALF_INFINITY = np.int32(0x7C00)
_HALF_QUIET = np.int32(0x200)
_HALF_NORMAL = np.int32(0x400)
_HALF_LAST = np.float32(2.0**-24)
_REBIAS = np.int32((127 - 15) << 23)
_NORMAL = np.int32((127 - 14) << 23)
_BEYOND = np.int32((127 + 16) << 23)
_ALIGN = np.float32(0.5)
"""Its last bit weighs 2**-24, as that of a float16 denormal does: adding it lets the processor round."""
_ALIGN_BITS = np.int32(126 << 23)
_LARGEST_FLOAT16 = np.int32(0x477FEFFF)
_LARGEST_BFLOAT16 = np.int32(0x7F7F7FFF)
"""The largest magnitudes that round to a finite number."""
_BELOW_MIDDLE_FLOAT16 = np.int32(0xFFF)
_BELOW_MIDDLE_BFLOAT16 = np.int32(0x7FFF)


@njit
def _from_bfloat16(bits):
    return np.int32(np.int32(bits) << _SIXTEEN).view(np.float32)


@njit
def _from_float16(bits):
    wide = np.int32(bits)
    magnitude = np.int32(wide & _HALF_MAGNITUDE)
    denormal = np.float32(np.float32(magnitude) * _HALF_LAST).view(np.int32)
    beyond = np.int32(-np.int32(magnitude >= _HALF_INFINITY))
    normal = np.int32(np.int32(np.int32(magnitude << _THIRTEEN) + _REBIAS) + np.int32(beyond & _REBIAS))
    small = np.int32(-np.int32(magnitude < _HALF_NORMAL))
    found = np.int32((denormal & small) | (normal & ~small))
    return np.int32(found | np.int32(np.int32(wide & _HALF_SIGN) << _SIXTEEN)).view(np.float32)


@njit
def _judged(largest, fitting):
    return NOT_FINITE if largest >= _INFINITY else TOO_LARGE if largest > fitting else FITS


@njit(nogil=True, cache=True)
def widen_bfloat16(bits, out):
    """uint16 [n] -> float32 [n], exact."""
    for i in range(out.size):
        out[i] = _from_bfloat16(bits[i])


@njit(nogil=True, cache=True)
def widen_float16(bits, out):
    """uint16 [n] -> float32 [n], exact."""
    for i in range(out.size):
        out[i] = _from_float16(bits[i])


@njit(nogil=True, cache=True)
def subtract_bfloat16(after, before, out):
    """uint16 [n], [n] -> float32 [n]: after - before."""
    for i in range(out.size):
        out[i] = _from_bfloat16(after[i]) - _from_bfloat16(before[i])


@njit(nogil=True, cache=True)
def subtract_float16(after, before, out):
    """uint16 [n], [n] -> float32 [n]: after - before."""
    for i in range(out.size):
        out[i] = _from_float16(after[i]) - _from_float16(before[i])


@njit(nogil=True, cache=True)
def subtract_float32(after, before, out):
    """float32 [n], [n] -> float32 [n]: after - before."""
    for i in range(out.size):
        out[i] = after[i] - before[i]


@njit(nogil=True, cache=True)
def check_float32(patterns):
    """int32 [n], the bits of float32: FITS or NOT_FINITE."""
    largest = np.int32(0)
    for i in range(patterns.size):
        largest = max(largest, np.int32(patterns[i] & _MAGNITUDE))
    return _judged(largest, _INFINITY)


@njit
def _subtract_at(dtype, after, before, out):
    """Addresses of n values of a dtype -> float32 [n]: after - before."""
    size = out.size
    if dtype == FLOAT32:
        subtract_float32(carray(lanes.floats_at(after), size), carray(lanes.floats_at(before), size), out)
    elif dtype == BFLOAT16:
        subtract_bfloat16(carray(lanes.halves_at(after), size), carray(lanes.halves_at(before), size), out)
    else:
        subtract_float16(carray(lanes.halves_at(after), size), carray(lanes.halves_at(before), size), out)


@njit
def _bytes(dtype, count):
    """What so many values take."""
    return np.uint64((4 if dtype == FLOAT32 else 2) * count)


@njit(nogil=True, cache=True)
def differences(dtype, addresses, out):
    """uint64 [1 + T], of n values -> float32 [T, n]: each after the first less the first.

    Returns the number of the first row that holds NaN or infinity, or T.  They are looked for in a loop of its own, on
    values that lie in the L1 cache: beside the conversion of half floats compilers make no vector instructions of it.
    """
    tasks, size = out.shape
    refused = tasks
    for task in range(tasks - 1, -1, -1):
        for start in range(0, size, _RUN):
            some, at = out[task, start : min(start + _RUN, size)], _bytes(dtype, start)
            _subtract_at(dtype, addresses[task + 1] + at, addresses[0] + at, some)
            if check_float32(some.view(np.int32)) != FITS:
                refused = task
    return refused


@njit(nogil=True, cache=True)
def gather(dtype, after, before, counts, out):
    """uint64 [R], [R], int64 [R] -> float32 [n]: the differences of runs, one after the other."""
    at = 0
    for run in range(counts.size):
        _subtract_at(dtype, after[run], before[run], out[at : at + counts[run]])
        at += counts[run]


@njit(nogil=True, cache=True)
def collect_between(dtype, after, before, counts, low, width, found):
    """`loops.collect_between` of the differences of runs of a dtype, a few at a time, which stay in the L1 cache."""
    below, within, room = np.int64(0), np.int64(0), np.empty(_RUN, np.float32)
    for run in range(counts.size):
        for start in range(0, counts[run], _RUN):
            some, at = room[: min(_RUN, counts[run] - start)], _bytes(dtype, start)
            _subtract_at(dtype, after[run] + at, before[run] + at, some)
            rest = found[min(within, found.size) :]
            less, more = loops.collect_between(low, width, some.view(np.uint32), rest)
            below, within = below + less, within + more
    return below, within


@njit(nogil=True, cache=True)
def narrow_bfloat16(patterns, out):
    """int32 [n], the bits of float32 -> uint16 [n], rounded to nearest even; FITS, NOT_FINITE or TOO_LARGE."""
    largest = np.int32(0)
    for i in range(out.size):
        bits = np.int32(patterns[i])
        magnitude = np.int32(bits & _MAGNITUDE)
        odd = np.int32(np.int32(magnitude >> _SIXTEEN) & _ONE)
        rounded = np.int32(np.int32(magnitude + _BELOW_MIDDLE_BFLOAT16) + odd)
        nan = np.int32(-np.int32(magnitude > _INFINITY))
        found = np.int32((rounded & ~nan) | (np.int32(magnitude | _QUIET) & nan))
        sign = np.int32(np.int32(bits >> _SIXTEEN) & _HALF_SIGN)
        out[i] = np.uint16(np.int32(np.int32(found >> _SIXTEEN) | sign))
        largest = max(largest, magnitude)
    return _judged(largest, _LARGEST_BFLOAT16)


@njit(nogil=True, cache=True)
def narrow_float16(patterns, out):
    """int32 [n], the bits of float32 -> uint16 [n], rounded to nearest even; FITS, NOT_FINITE or TOO_LARGE."""
    largest = np.int32(0)
    for i in range(out.size):
        bits = np.int32(patterns[i])
        magnitude = np.int32(bits & _MAGNITUDE)
        aligned = np.float32(np.int32(min(magnitude, _NORMAL)).view(np.float32) + _ALIGN)
        denormal = np.int32(np.float32(aligned).view(np.int32) - _ALIGN_BITS)
        odd = np.int32(np.int32(magnitude >> _THIRTEEN) & _ONE)
        rebiased = np.int32(magnitude - np.int32(_REBIAS - _BELOW_MIDDLE_FLOAT16))
        normal = np.int32(np.int32(rebiased + odd) >> _THIRTEEN)
        small = np.int32(-np.int32(magnitude < _NORMAL))
        found = np.int32((denormal & small) | (normal & ~small))
        beyond = np.int32(-np.int32(magnitude >= _BEYOND))
        found = np.int32((found & ~beyond) | (_HALF_INFINITY & beyond))
        nan = np.int32(-np.int32(magnitude > _INFINITY))
        found = np.int32(found | (_HALF_QUIET & nan))
        sign = np.int32(np.int32(bits >> _SIXTEEN) & _HALF_SIGN)
        out[i] = np.uint16(np.int32(found | sign))
        largest = max(largest, magnitude)
    return _judged(largest, _LARGEST_FLOAT16)


@njit(nogil=True, cache=True)
def low_rank(left, right, scale, start, columns, out):
    """float32 [rows, r], [r * columns] -> [n]: the values from ``start`` on of the flattened scale * (left right).

    Each value is summed over r in order, so that neither where a piece begins nor the machine shows.
    """
    ranks = right.size // columns
    done = 0
    while done < out.size:
        row, first = (start + done) // columns, (start + done) % columns
        count = min(columns - first, out.size - done)
        part = out[done : done + count]
        part[:] = 0
        k = 0
        while k + 4 <= ranks:  # four at once: the sums are fetched and stored a quarter as often
            place = k * columns + first
            a, b, c, d = left[row, k], left[row, k + 1], left[row, k + 2], left[row, k + 3]
            row_a = right[place : place + count]
            row_b = right[place + columns : place + columns + count]
            row_c = right[place + 2 * columns : place + 2 * columns + count]
            row_d = right[place + 3 * columns : place + 3 * columns + count]
            for j in range(count):
                part[j] = (((part[j] + a * row_a[j]) + b * row_b[j]) + c * row_c[j]) + d * row_d[j]
            k += 4
        while k < ranks:
            place = k * columns + first
            a, row_a = left[row, k], right[place : place + count]
            for j in range(count):
                part[j] += a * row_a[j]
            k += 1
        for j in range(count):
            part[j] *= scale
        done += count
