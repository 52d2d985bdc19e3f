"""The array kernels: numba loops over contiguous slices, exact and in pieces.

Every vector here is float32 [P'] and may be a memory map. The work is cut into pieces of ``piece`` values
that ``numba.get_num_threads()`` threads take in turn: memory grows with one piece, never with T models, and
since each value belongs to one piece the number of threads never changes a result. Fast-math stays off:
float32 operations happen one by one in the order written here, and denormals count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numba
import numpy as np
from numba import njit
from numpy.typing import NDArray

PIECE = 1 << 16
"""Values in a piece: a handful of float32 slices of this length stay in a core's L2 cache."""

Vector = NDArray[np.float32]
Result = TypeVar("Result")

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_LOWER = np.uint32(0xFFFF)
_HALF = np.uint32(16)
_EACH_BYTE = np.uint64(0x0101010101010101)
_DIAGONAL = np.uint64(0x8040201008040201)
_CARRY = np.uint64(0x7F7F7F7F7F7F7F7F)
_GATHER = np.uint64(0x0102040810204080)


def sum_vectors(vectors: Sequence[Vector], out: Vector, piece: int = PIECE) -> None:
    """``out[p] = tau_1[p] + tau_2[p] + ...``, added task by task in float32.

    ``vectors``: T >= 1 vectors [P']; ``out`` [P'] is overwritten.
    """
    rows = [_read_only(vector) for vector in vectors]

    def work(part: slice) -> None:
        out[part] = rows[0][part]
        for row in rows[1:]:
            _add(out[part], row[part])

    _in_pieces(out.size, piece, work)


def merge_ties(
    vectors: Sequence[Vector], thresholds: Sequence[np.float32], out: Vector, *, mean: bool, piece: int = PIECE
) -> None:
    """TIES (Yadav et al. 2023): trim, elect a sign per weight, merge the entries that agree with it.

    Trim keeps |tau| >= threshold, one per task. The elected sign is that of the sum of the trimmed vectors; where
    the sum is 0, the majority: the sign of the sum of all elected signs (where that is 0 too, no entry agrees).
    ``out`` [P'] becomes the sum of the agreeing entries, or with ``mean`` their mean (0 where none agrees).
    """
    rows = [_read_only(vector) for vector in vectors]

    def elect(part: slice) -> int:
        out[part] = 0
        for row, limit in zip(rows, thresholds, strict=True):
            _add_trimmed(out[part], row[part], limit)
        return _balance(out[part])

    majority = np.float32(np.sign(sum(_in_pieces(out.size, piece, elect))))

    def merge(part: slice) -> None:
        elected = _elect(out[part], majority)
        agreeing = np.zeros_like(elected)
        out[part] = 0
        for row, limit in zip(rows, thresholds, strict=True):
            _add_agreeing(out[part], agreeing, row[part], limit, elected)
        if mean:
            out[part] /= np.maximum(agreeing, np.float32(1))

    _in_pieces(out.size, piece, merge)


def nth_magnitude(vector: Vector, n: int) -> np.float32:
    """The exact n-th smallest |value| of ``vector`` [P'], 1 <= n <= P', without sorting it.

    For float32 the order of magnitudes is the order of the bit patterns without their sign, so a histogram of
    the upper 16 bits and one of the lower 16 within the bucket found give the pattern; 0.0 and -0.0 are one
    value and denormals count.
    """
    if not 1 <= n <= vector.size:
        raise ValueError(f"n = {n} is not within 1..{vector.size}")
    patterns = _read_only(vector).view(np.uint32)
    share = -(-vector.size // numba.get_num_threads())

    def upper(part: slice) -> NDArray[np.int64]:
        return _histogram_upper(patterns[part])

    def lower(part: slice) -> NDArray[np.int64]:
        return _histogram_lower(patterns[part], np.uint32(high))

    ends = np.cumsum(sum(_in_pieces(vector.size, share, upper)))
    high = int(np.searchsorted(ends, n))
    below = int(ends[high - 1]) if high else 0
    ends = np.cumsum(sum(_in_pieces(vector.size, share, lower)))
    low = int(np.searchsorted(ends, n - below))
    return np.uint32(high << 16 | low).view(np.float32)


def pack_levels(
    task_vectors: Sequence[Vector],
    multi_task_vector: Vector,
    lambdas: Sequence[float],
    planes: Sequence[NDArray[np.uint8]],
    piece: int = PIECE,
) -> None:
    """The TALL-mask of each task for every lambda of an ascending grid, in one pass over the data.

    The level of a weight is the number of lambdas with ``|tau_t| > float32(lambda) * |tau_MTL - tau_t|`` (Eq. 5 of
    Wang et al. 2024 with > for >=, as in their code: a weight that no task moved is in no mask). Each comparison is
    evaluated in float32 as written, and since rounding is monotone the mask of the j-th lambda is ``level > j``.

    ``planes``: per task uint8 [B, ceil(P' / 8)] to overwrite; bit i of byte j of plane b is bit b of the
    level of weight 8 j + i. ``piece`` must be a multiple of 8.
    """
    if piece % 8:
        raise ValueError(f"piece = {piece} is not a multiple of 8")
    rows = [_read_only(vector) for vector in task_vectors]
    merged = _read_only(multi_task_vector)
    grid = tuple(np.float32(value) for value in lambdas)

    def work(part: slice) -> None:
        size = part.stop - part.start
        levels = np.zeros(-(-size // 8) * 8, np.uint8)
        packed = slice(part.start // 8, -(-part.stop // 8))
        for row, plane in zip(rows, planes, strict=True):
            _count_levels(row[part], merged[part], grid, levels[:size])
            _pack(levels.view(np.uint64), plane[:, packed])

    _in_pieces(merged.size, piece, work)


def unpack_levels(planes: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The levels uint8 [P'] from planes uint8 [B, ceil(P' / 8)]: the inverse of the packing."""
    levels = np.zeros(size, np.uint8)
    for bit, plane in enumerate(planes):
        levels |= np.unpackbits(plane, count=size, bitorder="little") << np.uint8(bit)
    return levels


def packed_mask(planes: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
    """The mask of the grid's ``index``-th lambda, ``level > index``, as packed bits uint8 [ceil(P' / 8)].

    Compares eight weights a byte, plane by plane from the highest bit, without unpacking.
    """
    above = np.zeros(planes.shape[1], np.uint8)
    equal = np.full(planes.shape[1], 255, np.uint8)
    for bit in reversed(range(planes.shape[0])):
        if index >> bit & 1:
            equal &= planes[bit]
        else:
            above |= equal & planes[bit]
            equal &= ~planes[bit]
    return above


def count_agreement(
    planes: Sequence[NDArray[np.uint8]], indices: Sequence[int], out: NDArray[np.uint8], piece: int = PIECE
) -> None:
    """``out[p]`` = n(p), the number of tasks whose mask at its own lambda, the grid's index-th, holds weight p.

    ``planes``: per task, T <= 255, uint8 [B, ceil(P' / 8)] as of :func:`pack_levels`; ``indices``: per task;
    ``out`` uint8 [P'] is overwritten. ``piece`` must be a multiple of 8.
    """
    if piece % 8:
        raise ValueError(f"piece = {piece} is not a multiple of 8")

    def work(part: slice) -> None:
        size = part.stop - part.start
        counts = np.zeros(-(-size // 8) * 8, np.uint8)
        packed = slice(part.start // 8, -(-part.stop // 8))
        for plane, index in zip(planes, indices, strict=True):
            _add_bits(counts.view(np.uint64), packed_mask(plane[:, packed], index))
        out[part] = counts[:size]

    _in_pieces(out.size, piece, work)


def count_values(agreement: NDArray[np.uint8], multi_task_vector: Vector, piece: int = PIECE) -> NDArray[np.int64]:
    """How many weights have each n, int64 [2, 256]: those whose tau_MTL is not 0, and those where it is 0 (or -0).

    ``agreement`` uint8 [P'], ``multi_task_vector`` [P'].
    """

    def work(part: slice) -> NDArray[np.int64]:
        joint = agreement[part].astype(np.intp) + 256 * (multi_task_vector[part] == 0)
        return np.bincount(joint, minlength=512)

    return np.sum(_in_pieces(agreement.size, piece, work), axis=0).reshape(2, 256)


def _in_pieces(size: int, piece: int, work: Callable[[slice], Result]) -> list[Result]:
    """``work`` on every slice of ``piece`` values, on numba's number of threads; the results in order."""
    parts = [slice(start, min(start + piece, size)) for start in range(0, size, piece)]
    if numba.get_num_threads() == 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        return list(pool.map(work, parts))


def _read_only(array: NDArray) -> NDArray:
    """A plain read-only view: memory maps and arrays then share one compiled kernel."""
    view = np.asarray(array)[:]
    view.flags.writeable = False
    return view


@njit(nogil=True, cache=True)
def _add(total, row):
    """float32 [n]: total += row."""
    for i in range(total.size):
        total[i] += row[i]


@njit(nogil=True, cache=True)
def _add_trimmed(total, row, limit):
    """float32 [n]: total += row where |row| >= limit."""
    for i in range(total.size):
        total[i] += row[i] if abs(row[i]) >= limit else np.float32(0)


@njit(nogil=True, cache=True)
def _balance(total):
    """float32 [n]: how many values are above 0, less how many are below."""
    balance = 0
    for i in range(total.size):
        balance += (total[i] > 0) - (total[i] < 0)
    return balance


@njit(nogil=True, cache=True)
def _elect(total, majority):
    """float32 [n] -> float32 [n]: the sign of each value, the majority where it is 0."""
    elected = np.empty_like(total)
    for i in range(total.size):
        sign = np.float32(total[i] > 0) - np.float32(total[i] < 0)
        elected[i] = majority if sign == 0 else sign
    return elected


@njit(nogil=True, cache=True)
def _add_agreeing(total, agreeing, row, limit, elected):
    """float32 [n]: total += row and agreeing += 1 where |row| >= limit and row has the elected sign."""
    for i in range(total.size):
        kept = row[i] if abs(row[i]) >= limit else np.float32(0)
        agrees = kept * elected[i] > 0
        total[i] += kept if agrees else np.float32(0)
        agreeing[i] += np.float32(agrees)


@njit(nogil=True, cache=True)
def _histogram_upper(patterns):
    """uint32 [n] -> int64 [65536]: how often each upper half of a magnitude occurs."""
    counts = np.zeros(1 << 16, np.int64)
    for i in range(patterns.size):
        counts[(patterns[i] & _MAGNITUDE) >> _HALF] += 1
    return counts


@njit(nogil=True, cache=True)
def _histogram_lower(patterns, upper):
    """uint32 [n] -> int64 [65536]: how often each lower half occurs, among the magnitudes with this upper half."""
    counts = np.zeros(1 << 16, np.int64)
    for i in range(patterns.size):
        magnitude = patterns[i] & _MAGNITUDE
        if magnitude >> _HALF == upper:
            counts[magnitude & _LOWER] += 1
    return counts


@njit(nogil=True, cache=True)
def _count_levels(task_vector, multi_task_vector, lambdas, levels):
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
def _pack(words, planes):
    """uint64 [m], eight levels each -> uint8 [B, m]: one multiplication gathers a bit of eight bytes in a byte."""
    for bit in range(planes.shape[0]):
        for j in range(words.size):
            planes[bit, j] = (((words[j] >> np.uint64(bit)) & _EACH_BYTE) * _GATHER) >> np.uint64(56)


@njit(nogil=True, cache=True)
def _add_bits(words, packed):
    """uint64 [m], eight counts each; uint8 [m]: counts += bits, eight at once (the inverse of the gathering)."""
    for j in range(words.size):
        spread = (np.uint64(packed[j]) * _EACH_BYTE) & _DIAGONAL
        words[j] += ((spread + _CARRY) >> np.uint64(7)) & _EACH_BYTE
