"""The array kernels: loops over contiguous slices, exact and in pieces.

Every vector here is float32 [P'] and may be a memory map. The work is cut into pieces of ``piece`` values
that ``numba.get_num_threads()`` threads take in turn: memory grows with one piece, never with T models, and
since each value belongs to one piece the number of threads never changes a result. Fast-math stays off:
float32 operations happen one by one in the order written here, and denormals count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.vectors.checkpoints import float_bytes
from tallmasks.vectors.differences import Difference, Runs
from tallmasks.vectors.walks import Majority, walk

PIECE = 1 << 16
"""Values in a piece: a handful of float32 slices of this length stay in a core's L2 cache."""

PARTITIONED = 1 << 18
"""Up to so many values are partitioned in memory."""

SAMPLE, SAMPLED, SAMPLE_MARGIN = 1 << 17, 1024, 5
"""How many values a sample has, more of long vectors, in how many blocks, fewer of short ones, and how many standard
errors a share of it may be off, as they follow from how much each block differs from the next."""

COLLECTED = 16, 1 << 23
"""One of so many values, at most, is collected, and no more than so many on a thread."""

LONG = 1 << 24
"""Values that a loop looks through before it says how far it is."""

Vector = NDArray[np.float32]
Result = TypeVar("Result")


def majority_sign(vectors: Sequence[Vector], thresholds: Sequence[np.float32], piece: int = PIECE) -> Any:
    """TIES' sign where the trimmed vectors sum to 0, for :func:`merge_ties`, which finds it on the way if it can.

    ``vectors``: T >= 1 of [P'], trimmed to |tau| >= threshold, one per task.
    """
    loops = _compiled()
    limits, nobody = np.array(thresholds, np.float32), np.float32(0)

    def work(part: slice) -> int:
        rows = [_contiguous(vector[part]) for vector in vectors]
        out = np.empty(part.stop - part.start, np.float32)
        return int(loops.merge_ties(_addresses(rows), limits, nobody, False, out)[0])

    return Majority(vectors[0].size, lambda: sum(in_pieces(vectors[0].size, work, piece)))


def merge_ties(
    rows: Sequence[Vector], thresholds: Sequence[np.float32], majority: Any, out: Vector, *, mean: bool
) -> None:
    """TIES (Yadav et al. 2023): trim, elect a sign per weight, merge the entries that agree with it.

    Trim keeps |tau| >= threshold, one per task. The elected sign is that of the sum of the trimmed vectors; where
    the sum is 0, the majority (:func:`majority_sign`; where that is 0 too, no entry agrees).
    ``rows``: slices [n] of T vectors; ``out`` [n] becomes the sum of the agreeing entries, or with ``mean`` their
    mean (0 where none agrees).

    Raises Later, in a walk over pieces (:func:`in_pieces`), where the majority is needed and not known yet.
    """
    rows = _contiguous_rows(rows)
    addresses, limits = _addresses(rows), np.array(thresholds, np.float32)
    known = majority.known
    balance, asked = _compiled().merge_ties(addresses, limits, np.float32(0) if known is None else known, mean, out)
    if known is None:
        majority.tell(out.size, int(balance))
        if asked:
            _compiled().merge_ties(addresses, limits, majority.sign(), mean, out)


def nth_magnitude(vector: Vector, n: int) -> np.float32:
    """The exact n-th smallest |value| of ``vector`` [P'], 1 <= n <= P', without sorting it.

    For float32 the order of magnitudes is the order of the bit patterns without their sign; 0.0 and -0.0 are one value
    and denormals count. Up to PARTITIONED values are partitioned. Of more, a sample says between which magnitudes the
    answer lies in all likelihood: collecting those, and counting what is smaller, gives it in one pass over the data.
    Where it cannot say so closely, or misled, or too many values lie there, a histogram of the upper 16 bits and one of
    the lower 16 within the bucket found give it in two.
    """
    if not 1 <= n <= vector.size:
        raise ValueError(f"n = {n} is not within 1..{vector.size}")
    if vector.size <= PARTITIONED:
        return np.float32(np.partition(_magnitudes(vector[:]), n - 1)[n - 1].view(np.float32))
    likely = _likely_patterns(vector, n)
    found = _nth_near(vector, n, *likely) if likely else None
    return _nth_by_halves(vector, n) if found is None else found


def _nth_near(vector: Vector, n: int, low: int, high: int) -> np.float32 | None:
    """The same, if it is one of the patterns low..high and they are of few values."""
    first, width = np.uint32(low), np.uint32(high - low + 1)

    def work(share: slice) -> tuple[int, int, NDArray[np.uint32]]:
        found = np.empty(min(vector.size // COLLECTED[0], COLLECTED[1]), np.uint32)
        below = within = 0
        for collect in _collecting(vector, share):
            less, more = collect(first, width, found[within:])
            below, within = below + less, within + more
        return below, within, found[:within]

    belows, withins, collected = zip(*in_pieces(vector.size, work, _share(vector.size)), strict=True)
    rank = n - 1 - sum(belows)
    if not 0 <= rank < sum(withins):
        return None
    if low == high:
        return first.view(np.float32)
    if sum(map(len, collected)) < sum(withins):
        return None
    held = np.concatenate(collected)
    held.partition(rank)
    return np.float32(held[rank].view(np.float32))


def _nth_by_halves(vector: Vector, n: int) -> np.float32:
    """The same from two passes, the first for the upper half of the bits."""
    loops = _compiled()

    def count(histogram: Callable[[NDArray[np.uint32], NDArray[np.int64]], None]) -> NDArray[np.int64]:
        def work(share: slice) -> NDArray[np.int64]:
            counts = np.zeros(1 << 16, np.int64)
            for part in _patterns(vector, share):
                histogram(part, counts)
            return counts

        return np.cumsum(sum(in_pieces(vector.size, work, _share(vector.size))))

    ends = count(loops.histogram_upper)
    upper = int(np.searchsorted(ends, n))
    below = int(ends[upper - 1]) if upper else 0
    ends = count(partial(loops.histogram_lower, np.uint32(upper)))
    return np.uint32(upper << 16 | int(np.searchsorted(ends, n - below))).view(np.float32)


def _share(size: int) -> int:
    """How many values a thread looks through; what it counts has 32 bits."""
    return min(-(-size // _compiled().threads()), 1 << 31)


def _patterns(vector: Vector, share: slice) -> Iterator[NDArray[np.uint32]]:
    for start in range(share.start, share.stop, PIECE):
        yield _read_only(_contiguous(vector[start : min(start + PIECE, share.stop)])).view(np.uint32)


def _collecting(vector: Vector, share: slice) -> Iterator[Callable[..., tuple[int, int]]]:
    """`loops.collect_between` of one part of a share after the other."""
    for start in range(share.start, share.stop, LONG):
        part = slice(start, min(start + LONG, share.stop))
        if (runs := _runs(vector, [part])) is not None:
            yield float_bytes.collecting(runs)
            continue
        for patterns in _patterns(vector, part):
            yield partial(_between, patterns)


def _between(patterns: NDArray[np.uint32], low: Any, width: Any, found: NDArray[np.uint32]) -> tuple[int, int]:
    return _compiled().collect_between(low, width, patterns, found)


def _blocks(vector: Vector, parts: Sequence[slice]) -> Vector:
    """Slices of one length, float32 [B, n]."""
    if (runs := _runs(vector, parts)) is not None:
        return float_bytes.gathered(runs).reshape(len(parts), -1)
    return np.stack([vector[part] for part in parts])


def _runs(vector: Any, parts: Sequence[slice]) -> Runs | None:
    return vector.runs(parts) if isinstance(vector, Difference) else None


def _magnitudes(values: Vector) -> NDArray[np.uint32]:
    return np.ascontiguousarray(values).view(np.uint32) & np.uint32(0x7FFFFFFF)


def sampled(size: int) -> list[slice]:
    """Where the sample of a vector of more than PARTITIONED values lies."""
    blocks = min(SAMPLED, max(128, size >> 15))
    length = max(SAMPLE, size >> 9) // blocks
    return [slice(start, start + length) for start in np.linspace(0, size - length, blocks).astype(int).tolist()]


def _likely_patterns(vector: Vector, n: int) -> tuple[int, int] | None:
    """The patterns, without the sign, between which the n-th smallest magnitude lies if a sample is like the rest; None
    where too many values would be."""
    blocks = _magnitudes(_blocks(vector, sampled(vector.size)))
    sample, middle = blocks.reshape(-1), n / vector.size
    rank = int(middle * (sample.size - 1))
    shares = np.count_nonzero(blocks <= np.partition(sample, rank)[rank], axis=1) / blocks.shape[1]
    steps = np.abs(np.diff(shares)) / 2**0.5
    # what is left of chance in most blocks; and where layers begin, somewhere between two of the evenly spread blocks
    spread = np.hypot(1.4826 * np.median(steps), np.sqrt(np.mean(steps**2) / 6))
    margin = SAMPLE_MARGIN * spread / len(blocks) ** 0.5 + 64 / sample.size
    if 2 * margin * COLLECTED[0] > 1:
        return None
    ranks = (np.array([middle - margin, middle + margin]) * sample.size).astype(np.int64).clip(0, sample.size - 1)
    low, high = (np.partition(sample, rank)[rank] for rank in ranks)  # for one rank there are vector instructions
    return int(low), int(high)


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
    loops = _compiled()
    if piece % 8:
        raise ValueError(f"piece = {piece} is not a multiple of 8")
    merged = _read_only(multi_task_vector)
    grid = tuple(np.float32(value) for value in lambdas)
    beginnings = _beginnings(planes)

    def work(part: slice) -> None:
        rows = [_contiguous(vector[part]) for vector in task_vectors]
        loops.pack_levels(_addresses(rows), merged[part], grid, beginnings + np.uint64(part.start // 8))

    in_pieces(merged.size, work, piece)


def pack_masks(rows: Sequence[Vector], merged: Vector, lambdas: Sequence[float]) -> NDArray[np.uint8]:
    """The TALL-masks of a slice of every task vector, each for its own lambda, as packed bits uint8 [T, ceil(n / 8)].

    ``rows``: T float32 [n]; ``merged``: tau_MTL, float32 [n]; the rule is that of :func:`pack_levels`.
    """
    rows = _contiguous_rows(rows)
    packed = np.empty((len(rows), -(-merged.size // 8)), np.uint8)
    factors = np.array(lambdas, np.float32)
    _compiled().pack_masks(_addresses(rows), _read_only(merged), factors, _addresses(packed))
    return packed


def count_mask(row: Vector, merged: Vector, mask_lambda: float, counts: NDArray[np.uint8]) -> None:
    """Add the same mask to ``counts``, uint8 [n]."""
    _compiled().count_mask(_read_only(row), _read_only(merged), np.float32(mask_lambda), counts)


def kept_lengths(row: Vector, merged: Vector, lambdas: Sequence[float]) -> NDArray[np.float64]:
    """The sum of |tau_MTL| over the TALL-mask of a slice for each lambda, and at the end of |tau_t|; float64 [L + 1].

    ``row``, ``merged``: float32 [n], tau_t and tau_MTL; ``lambdas``: ascending.
    """
    grid = tuple(np.float32(value) for value in lambdas)
    sums = np.zeros(len(grid) + 1)
    _compiled().add_kept(_read_only(row), _read_only(merged), grid, sums)
    return sums


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
    loops = _compiled()
    if piece % 8:
        raise ValueError(f"piece = {piece} is not a multiple of 8")

    beginnings = _beginnings(planes)
    chosen = np.array(indices, np.int64)

    def work(part: slice) -> None:
        loops.count_agreement(beginnings + np.uint64(part.start // 8), chosen, out[part])

    in_pieces(out.size, work, piece)


def count_values(agreement: NDArray[np.uint8], multi_task_vector: Vector, piece: int = PIECE) -> NDArray[np.int64]:
    """How many weights have each n, int64 [2, 256]: those whose tau_MTL is not 0, and those where it is 0 (or -0).

    ``agreement`` uint8 [P'], ``multi_task_vector`` [P'].
    """

    def work(part: slice) -> NDArray[np.int64]:
        joint = agreement[part].astype(np.intp) + 256 * (multi_task_vector[part] == 0)
        return np.bincount(joint, minlength=512)

    return np.sum(in_pieces(agreement.size, work, piece), axis=0).reshape(2, 256)


def finite(row: Vector) -> bool:
    """Whether no value of a slice, float32 [n], is NaN or infinite."""
    return bool(_compiled().finite(_read_only(row).view(np.int32)))


def threads() -> int:
    """How many threads work on an array; planning asks for none, and imports no numba."""
    return int(_compiled().threads())


def all_finite(vector: Vector, piece: int = PIECE) -> bool:
    """Whether no value of ``vector`` [P'] is NaN or infinite."""
    return all(in_pieces(vector.size, lambda part: finite(vector[part]), piece))


def in_pieces(size: int, work: Callable[[slice], Result], piece: int = PIECE) -> list[Result]:
    """``work`` on every slice of ``piece`` values, on numba's number of threads; the results in order.

    A single one is worked on where this is called: so kernels can be called within the pieces of another walk.
    """
    if size <= piece:
        return [work(slice(0, size))] if size else []
    starts = range(0, size, piece)
    threads = _compiled().threads()
    found = dict(walk(starts, lambda start: work(slice(start, min(start + piece, size))), threads))
    return [found[start] for start in starts]


@cache
def _compiled() -> ModuleType:
    """The compiled loops, imported with the first kernel that runs."""
    from tallmasks.vectors import loops

    return loops


def _read_only(array: NDArray) -> NDArray:
    """A plain read-only view: memory maps and arrays then share one compiled kernel."""
    view = np.asarray(array)[:]
    view.flags.writeable = False
    return view


def _contiguous(row: Vector) -> Vector:
    """A slice as float32 values one behind the other, which loops are told of by their address."""
    flags = row.flags if isinstance(row, np.ndarray) and row.dtype == np.float32 else None
    if flags is not None and flags.c_contiguous and flags.aligned:
        return row
    return np.require(np.asarray(row), np.float32, ["C", "A"])


def _contiguous_rows(rows: Sequence[Vector]) -> Sequence[Vector]:
    """The same of every row; an array of rows, [T, n], stays one."""
    if isinstance(rows, np.ndarray) and rows.dtype == np.float32 and rows.flags.c_contiguous and rows.flags.aligned:
        return rows
    return [_contiguous(row) for row in rows]


def _beginnings(planes: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint64]:
    """Where the bit planes of each task begin, uint64 [T, B]; whoever has them must keep the planes."""
    every = range(planes[0].shape[0])
    found = [[place + bit * plane.strides[0] for bit in every] for plane, place in ((p, p.ctypes.data) for p in planes)]
    return np.array(found, np.uint64)


def _addresses(rows: Sequence[NDArray[Any]] | NDArray[Any]) -> NDArray[np.uint64]:
    """Where slices begin, or the rows of an array, uint64 [T]; whoever has them must keep the slices."""
    if isinstance(rows, np.ndarray):
        return np.arange(len(rows), dtype=np.uint64) * np.uint64(rows.strides[0]) + np.uint64(rows.ctypes.data)
    return np.array([row.ctypes.data for row in rows], np.uint64)
