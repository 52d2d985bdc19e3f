"""The compiled loops behind the kernels: numba functions over contiguous slices.

Fast-math stays off: float32 operations happen one by one in the order written here, and denormals count.
Sums of 32-bit integers are cast back at once: numba makes 64 bits of them, which takes vectors twice as long.
They are a module of their own because numba takes most of a second to import, which planning can do without.
"""

import numba
import numpy as np
from numba import carray, njit

from tallmasks.vectors import lanes

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_SIGNLESS = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
_LOWER = np.uint32(0xFFFF)
_HALF = np.uint32(16)
_RUN = 8192
"""Values that stay in the L1 cache while all tasks' are worked on; a multiple of 8."""
_LANE_BYTES, _LANE_BITS, _RUN_BITS = np.uint64(4 * lanes.WIDTH), np.uint64(lanes.WIDTH // 8), np.uint64(_RUN // 8)


def threads() -> int:
    """How many threads numba would use: NUMBA_NUM_THREADS, or what `numba.set_num_threads` says."""
    return numba.get_num_threads()


@njit(forceinline=True)
def _address(array, place):
    """Where a value of a contiguous array lies, uint64."""
    return np.uint64(array.ctypes.data + place * array.itemsize)


@njit(forceinline=True)
def _merge_lanes(addresses, at, limits, majority, mean, out):
    """The weights of :func:`merge_ties` that lie `at` bytes into every row, and `out`: its results for them."""
    zero, one = lanes.all_of(np.float32(0)), lanes.all_of(np.float32(1))
    total = high = low = risen = fallen = zero
    for task in range(limits.size):
        value = lanes.load(addresses[task] + at)
        kept = lanes.chosen(lanes.at_least(lanes.magnitude(value), lanes.all_of(limits[task])), value, zero)
        up, down = lanes.above(kept, zero), lanes.above(zero, kept)
        total = lanes.add(total, kept)
        high = lanes.add(high, lanes.chosen(up, kept, zero))
        low = lanes.add(low, lanes.chosen(down, kept, zero))
        if mean:
            risen = lanes.add(risen, lanes.chosen(up, one, zero))
            fallen = lanes.add(fallen, lanes.chosen(down, one, zero))
    up, down = lanes.above(total, zero), lanes.above(zero, total)
    balance = lanes.count(up) - lanes.count(down)
    moved = lanes.above(high, zero) | lanes.above(zero, low)
    open_still = np.uint16(moved & ~(up | down))
    if majority > 0:
        up = np.uint16(~down)
    elif majority < 0:
        down = np.uint16(~up)
    merged = lanes.chosen(up, high, lanes.chosen(down, low, zero))
    if mean:
        agreeing = lanes.chosen(up, risen, lanes.chosen(down, fallen, one))
        merged = lanes.divide(merged, lanes.chosen(lanes.above(agreeing, one), agreeing, one))
    lanes.store(out, merged)
    return balance, open_still


@njit(nogil=True, cache=True)
def merge_ties(addresses, limits, majority, mean, out):
    """uint64 [T], of rows float32 [n], float32 [T] -> float32 [n]: the sum, or mean, of what has the elected sign.

    The sums of what agrees with either sign are made beside the sum that elects, so that rows are read once.

    Returns how many sums are above 0 less how many below, and whether the majority decided any.
    """
    balance, undecided = np.int64(0), np.uint16(0)
    rest = np.zeros((limits.size + 1, lanes.WIDTH), np.float32)
    rows, at, place = addresses, np.uint64(0), _address(out, 0)
    for start in range(0, out.size, lanes.WIDTH):
        left = out.size - start
        if left < lanes.WIDTH:
            rows = np.empty(limits.size, np.uint64)
            for task in range(limits.size):
                row = carray(lanes.floats_at(addresses[task] + at), left)
                for i in range(left):
                    rest[task, i] = row[i]
                rows[task] = _address(rest, lanes.WIDTH * task)
            at, place = np.uint64(0), _address(rest, lanes.WIDTH * limits.size)
        found, still = _merge_lanes(rows, at, limits, majority, mean, place)
        balance += found
        undecided |= still
        at, place = at + _LANE_BYTES, place + _LANE_BYTES
    for i in range(out.size % lanes.WIDTH):
        out[out.size - out.size % lanes.WIDTH + i] = rest[limits.size, i]
    return balance, undecided != 0


@njit(nogil=True, cache=True)
def collect_between(low, width, patterns, found):
    """uint32 [n], uint32 [m]: ``found`` = those of the magnitudes that are one of `width` patterns from `low` on, or
    the first m of them.

    Returns how many are below, and how many there are."""
    below, held_in_all = np.int64(0), np.int64(0)
    address, whole = _address(patterns, 0), patterns.size - patterns.size % lanes.WIDTH
    for start in range(0, whole, lanes.WIDTH):
        values = lanes.load(address)
        below += lanes.count(lanes.patterns_within(values, np.uint32(0), low))
        held = lanes.patterns_within(values, low, width)
        while held:
            if held_in_all < found.size:
                found[held_in_all] = patterns[np.uint64(start) + lanes.lowest(held)] & _MAGNITUDE
            held_in_all += 1
            held &= np.uint16(held - np.uint16(1))
        address += _LANE_BYTES
    for i in range(whole, patterns.size):
        magnitude = np.uint32(patterns[i] & _MAGNITUDE)
        below += magnitude < low
        if np.uint32(magnitude - low) < width:
            if held_in_all < found.size:
                found[held_in_all] = magnitude
            held_in_all += 1
    return below, held_in_all


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


@njit(forceinline=True)
def _hold_lanes(row, merged, lambdas, held):
    """The masks of sixteen weights for every lambda: bits from the address `held` on, a run's apart."""
    value = lanes.load(row)
    own, others = lanes.magnitude(value), lanes.magnitude(lanes.subtract(lanes.load(merged), value))
    for factor in lambdas:
        lanes.store_bits(held, lanes.above(own, lanes.multiply(lanes.all_of(factor), others)))
        held += _RUN_BITS


@njit(forceinline=True)
def _hold_rest(row, merged, left, rest, lambdas, held):
    """The same for the `left` weights, fewer than sixteen, at the end; `rest`, float32 [2, 16], is 0 behind them."""
    own, sums = carray(lanes.floats_at(row), left), carray(lanes.floats_at(merged), left)
    for i in range(left):
        rest[0, i] = own[i]
        rest[1, i] = sums[i]
    _hold_lanes(_address(rest[0], 0), _address(rest[1], 0), lambdas, held)


@njit(nogil=True, cache=True)
def pack_levels(addresses, multi_task_vector, lambdas, beginnings):
    """uint64 [T], of rows float32 [n], float32 [n], L-tuple, ascending, uint64 [T, B] -> uint8 [ceil(n / 8)] at each of
    these: for how many lambdas |tau| > lambda * |tau_MTL - tau|, in bit planes.

    The masks of an ascending grid lie in each other, so that bit b of a level is the exclusive or of the masks number
    2**b, 2 * 2**b, ... of the grid, counted from 1.  The lambdas come as a tuple so that the compiler knows how many
    there are.
    """
    held = np.zeros((len(lambdas), _RUN // 8), np.uint8)
    rest = np.zeros((2, lanes.WIDTH), np.float32)
    for start in range(0, multi_task_vector.size, _RUN):
        size = min(_RUN, multi_task_vector.size - start)
        left = size % lanes.WIDTH
        for task in range(addresses.size):
            row, merged = addresses[task] + np.uint64(4 * start), _address(multi_task_vector, start)
            place = _address(held, 0)
            for _ in range(size // lanes.WIDTH):
                _hold_lanes(row, merged, lambdas, place)
                row, merged, place = row + _LANE_BYTES, merged + _LANE_BYTES, place + _LANE_BITS
            if left:
                _hold_rest(row, merged, left, rest, lambdas, place)
            for bit in range(beginnings.shape[1]):
                plane = carray(lanes.bytes_at(beginnings[task, bit] + np.uint64(start // 8)), (size + 7) // 8)
                first = held[(1 << bit) - 1]
                for j in range(plane.size):
                    plane[j] = first[j]
                for number in range((2 << bit) - 1, len(lambdas), 1 << bit):
                    more = held[number]
                    for j in range(plane.size):
                        plane[j] ^= more[j]


@njit(nogil=True, cache=True)
def pack_masks(addresses, multi_task_vector, factors, beginnings):
    """uint64 [T], of rows float32 [n], float32 [n], float32 [T], uint64 [T] -> uint8 [ceil(n / 8)] at each of these:
    the bits of |tau| > factor * |tau_MTL - tau|."""
    rest = np.zeros((2, lanes.WIDTH), np.float32)
    last = np.zeros(lanes.WIDTH // 8, np.uint8)
    left = multi_task_vector.size % lanes.WIDTH
    for task in range(addresses.size):
        row, merged, place = addresses[task], _address(multi_task_vector, 0), beginnings[task]
        grid = (factors[task],)
        for _ in range(multi_task_vector.size // lanes.WIDTH):
            _hold_lanes(row, merged, grid, place)
            row, merged, place = row + _LANE_BYTES, merged + _LANE_BYTES, place + _LANE_BITS
        if left:
            _hold_rest(row, merged, left, rest, grid, _address(last, 0))
            held = carray(lanes.bytes_at(place), (left + 7) // 8)
            for j in range(held.size):
                held[j] = last[j]


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


@njit
def _hold_bits(planes, at, index, held, equal):
    """uint64 [B], where bytes of bit planes lie, and how far on -> uint8 [m]: the bits of ``level > index``, eight
    weights a byte; `equal`, uint8 [m], is for use."""
    for j in range(held.size):
        held[j] = 0
        equal[j] = 255
    for back in range(planes.size):
        bit = planes.size - 1 - back
        plane = carray(lanes.bytes_at(planes[bit] + at), held.size)
        if index >> bit & 1:
            for j in range(held.size):
                equal[j] &= plane[j]
        else:
            for j in range(held.size):
                held[j] |= equal[j] & plane[j]
                equal[j] &= ~plane[j]


@njit
def _add_bits(total, carried):
    """uint8 [m] each, a bit plane of counts and bits to add: the sums, and the bits that are carried."""
    for j in range(total.size):
        both = total[j] & carried[j]
        total[j] ^= carried[j]
        carried[j] = both


@njit(nogil=True, cache=True)
def count_agreement(planes, indices, out):
    """uint64 [T, B], addresses of bit planes uint8 [ceil(n / 8)] of levels; int64 [T] -> uint8 [n]: how many tasks'
    ``level > index``.

    Eight weights a byte are compared plane by plane without unpacking, and counted in bit planes too, until all tasks
    of a run are counted.
    """
    held, equal = np.empty(_RUN // 8, np.uint8), np.empty(_RUN // 8, np.uint8)
    sums, counts = np.empty((8, _RUN // 8), np.uint8), np.empty(_RUN, np.uint8)
    words = sums.view(np.uint64)
    for start in range(0, out.size, _RUN):
        size = min(_RUN, out.size - start)
        carried, same = held[: (size + 7) // 8], equal[: (size + 7) // 8]
        sums[:] = 0
        for task in range(indices.size):
            _hold_bits(planes[task], np.uint64(start // 8), indices[task], carried, same)
            bit = 0
            while task + 1 >> bit:
                _add_bits(sums[bit, : carried.size], carried)
                bit += 1
        counts[:] = 0
        bit = 0
        while indices.size >> bit:
            for j in range((size + 63) // 64):
                lanes.add_to_bytes(_address(counts, 64 * j), words[bit, j], np.uint8(1 << bit))
            bit += 1
        out[start : start + size] = counts[:size]
