"""Array kernels over contiguous slices, exact and in pieces.

Vectors are float32 [P'], memory-mapped or anything that can be sliced. Pieces have ``piece`` values, a multiple of 8.
Memory use does not depend on model size, and results do not depend on the number of threads. Fast-math is off: float32
operations happen in the order written here, and denormals are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.parallel import cached, parallel
from tallmasks.parallel import cores as threads

SLICE = 1 << 17  # fits a core's caches, and is long enough that threads rarely wait for the interpreter

PARTITIONED = 1 << 18  # up to this many values are partitioned in memory

Vector = NDArray[np.float32]
ReadSlices = Callable[[slice], Sequence[Vector] | Vector]  # a slice [n] of each of T vectors
Result = TypeVar("Result")


def majority_sign(vectors: Sequence[Vector], thresholds: Sequence[np.float32], piece: int = SLICE) -> Any:
    """A function that returns the sign of the sum of all elected signs, -1, 0 or 1, for :func:`merge_ties`. It reads
    the T >= 1 vectors at its first call. They are trimmed to |tau| >= threshold, one per task."""

    def balance(part: slice) -> int:
        return int(np.sign(_trimmed_sum([vector[part] for vector in vectors], thresholds)).sum(dtype=np.int64))

    return cached(lambda: np.float32(np.sign(sum(in_pieces(vectors[0].size, balance, piece)))))


def merge_ties(
    vectors: Sequence[Vector], thresholds: Sequence[np.float32], majority: Any, out: Vector, *, mean: bool
) -> None:
    """TIES (Yadav et al. 2023): trim, elect a sign per weight, merge the entries that agree with it.

    Trim keeps |tau| >= threshold, one per task. The elected sign is that of the sum of the trimmed vectors, or
    :func:`majority_sign` where that is 0. ``vectors``: T slices [n]; ``out`` [n] becomes the sum of the agreeing
    entries, or with ``mean`` their mean (0 if none agrees).
    """
    total, counts = _trimmed_sum(vectors, thresholds), np.zeros(out.size, np.float32)

    def agreeing(sign: np.float32) -> bool:
        out[:] = counts[:] = 0
        trimmed = zip(vectors, thresholds, strict=True)
        asked = [_compiled().add_agreeing(_plain(vector), limit, total, sign, out, counts) for vector, limit in trimmed]
        return any(asked)

    if agreeing(np.float32(0)):
        agreeing(majority())
    if mean:
        out /= np.maximum(counts, 1)


def _trimmed_sum(vectors: Sequence[Vector], thresholds: Sequence[np.float32]) -> Vector:
    """The sum of the trimmed values of T slices [n], float32 [n]."""
    total = np.zeros(vectors[0].size, np.float32)
    for vector, limit in zip(vectors, thresholds, strict=True):
        _compiled().add_trimmed(_plain(vector), limit, total)
    return total


def nth_magnitude(vector: Vector, n: int) -> np.float32:
    """:func:`nth_magnitudes` of one vector [P']."""
    return nth_magnitudes(lambda part: [vector[part]], vector.size, [n])[0, 0]


def nth_magnitudes(read: ReadSlices, size: int, ranks: Sequence[int]) -> NDArray[np.float32]:
    """The exact n-th smallest |value| of T vectors of ``size`` values, for each rank n, 1 <= n <= size; float32 [T, R].

    float32 magnitudes sort like their bit patterns without the sign. Up to PARTITIONED values are partitioned. Longer
    vectors are read twice: for a histogram of the upper 16 bits, then of the lower 16 bits of the matching values.
    """
    if size <= PARTITIONED:
        indices = np.subtract(ranks, 1)
        return np.stack([np.partition(np.abs(vector), indices)[indices] for vector in read(slice(0, size))])
    loops = _compiled()
    ends = _histograms(read, size, 1, lambda task, patterns, counts: loops.count_upper(patterns, counts[0]))
    upper = np.stack([np.searchsorted(row, ranks) for (row,) in ends]).astype(np.uint32)
    below = np.stack([np.append(0, row)[halves] for (row,), halves in zip(ends, upper, strict=True)])

    def count_lower(task: int, patterns: NDArray[np.uint32], counts: NDArray[np.uint32]) -> None:
        whole = patterns.size // 32 * 32
        for half, of_half in zip(upper[task], counts, strict=True):
            for blocks in (patterns[:whole].reshape(-1, 32), patterns[whole:].reshape(-1, 1)):
                loops.count_lower(blocks, of_half, half)

    ends = _histograms(read, size, len(ranks), count_lower)
    lower = [list(map(np.searchsorted, of_task, ranks - less)) for of_task, less in zip(ends, below, strict=True)]
    return (upper << 16 | np.array(lower, np.uint32)).view(np.float32)


def _histograms(read: ReadSlices, size: int, number: int, count: Callable[..., None]) -> NDArray[np.int64]:
    """Cumulative histograms, int64 [T, number, 65536]. ``count(task, patterns, counts)`` adds a slice, uint32 [n], to
    uint32 [number, 65536]."""

    def work(share: slice) -> NDArray[np.uint32]:
        counts = np.zeros((0, number, 1 << 16), np.uint32)
        for part in _slices(share.start, share.stop, SLICE):
            slices = read(part)
            if not len(counts):
                counts = np.zeros((len(slices), number, 1 << 16), np.uint32)
            for task, vector in enumerate(slices):
                count(task, _plain(vector).view(np.uint32), counts[task])
        return counts

    share = min(-(-size // threads()), 1 << 31)
    return np.cumsum(np.sum(in_pieces(size, work, share), axis=0, dtype=np.int64), axis=-1)


def pack_levels(
    task_vectors: Sequence[Vector],
    multi_task_vector: Vector,
    mask_lambdas: Sequence[float],
    planes: Sequence[NDArray[np.uint8]],
    piece: int = SLICE,
) -> None:
    """The TALL-mask of each task for every lambda of an ascending grid, in one pass over the data.

    The level of a weight is the number of lambdas with ``|tau_t| > float32(lambda) * |tau_MTL - tau_t|``, in float32
    (Eq. 5 of Wang et al. 2024 with > for >=, as in their code). The mask of the j-th lambda is ``level > j``.

    ``planes``: per task uint8 [B, ceil(P' / 8)] to overwrite; bit i of byte j of plane b is bit b of the level of
    weight 8 j + i.
    """

    def work(part: slice) -> None:
        for vector, of_task in zip(task_vectors, planes, strict=True):
            levels = _levels(vector[part], multi_task_vector[part], mask_lambdas)
            for bit, plane in enumerate(of_task):
                plane[part.start // 8 : -(-part.stop // 8)] = _packed(levels & np.uint8(1 << bit))

    in_pieces(multi_task_vector.size, work, piece)


def pack_masks(vectors: Sequence[Vector], merged: Vector, mask_lambdas: Sequence[float]) -> NDArray[np.uint8]:
    """The TALL-masks of a slice of every task vector, each for its own lambda: packed bits uint8 [T, ceil(n / 8)].
    ``vectors``: T float32 [n]; ``merged``: tau_MTL, float32 [n]; the rule is that of :func:`pack_levels`."""
    by_task = zip(vectors, mask_lambdas, strict=True)
    return np.stack([_packed(_levels(vector, merged, [mask_lambda])) for vector, mask_lambda in by_task])


def count_masks(vectors: Sequence[Vector], merged: Vector, mask_lambdas: Sequence[float]) -> NDArray[np.uint8]:
    """The number of tasks that have each weight of a slice in their mask, uint8 [n]; see :func:`pack_masks`."""
    counts = np.zeros(merged.size, np.uint8)
    for vector, mask_lambda in zip(vectors, mask_lambdas, strict=True):
        counts += _levels(vector, merged, [mask_lambda])
    return counts


def _levels(vector: Vector, merged: Vector, mask_lambdas: Sequence[float]) -> NDArray[np.uint8]:
    """The level of each weight of a slice, uint8 [n]; see :func:`pack_levels`."""
    levels = np.empty(merged.size, np.uint8)
    _compiled().levels(_plain(vector), _plain(merged), tuple(map(np.float32, mask_lambdas)), levels)
    return levels


def _packed(bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.packbits(bits, bitorder="little")


def unpack_levels(planes: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The levels uint8 [P'] from planes uint8 [B, ceil(P' / 8)] of :func:`pack_levels`."""
    levels = np.zeros(size, np.uint8)
    for bit, plane in enumerate(planes):
        levels |= np.unpackbits(plane, count=size, bitorder="little") << np.uint8(bit)
    return levels


def packed_mask(planes: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
    """The mask of the grid's ``index``-th lambda, ``level > index``, as packed bits uint8 [ceil(P' / 8)]."""
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
    planes: Sequence[NDArray[np.uint8]], indices: Sequence[int], out: NDArray[np.uint8], piece: int = SLICE
) -> None:
    """Set ``out[p]`` to n(p), the number of tasks that have weight p in their mask.

    ``planes``: per task, T <= 255, uint8 [B, ceil(P' / 8)] of :func:`pack_levels`; ``indices``: the index of each
    task's lambda in the grid; ``out``: uint8 [P'].
    """

    def work(part: slice) -> None:
        counts, packed = out[part], slice(part.start // 8, -(-part.stop // 8))
        counts[:] = 0
        for of_task, index in zip(planes, indices, strict=True):
            counts += np.unpackbits(packed_mask(of_task[:, packed], index), count=counts.size, bitorder="little")

    in_pieces(out.size, work, piece)


def count_values(agreement: NDArray[np.uint8], multi_task_vector: Vector, piece: int = SLICE) -> NDArray[np.int64]:
    """The number of weights by agreement n (uint8 [P']), int64 [2, 256]: where tau_MTL is not 0, and where it is 0."""

    def work(part: slice) -> NDArray[np.int64]:
        joint = agreement[part].astype(np.intp) + 256 * (multi_task_vector[part] == 0)
        return np.bincount(joint, minlength=512)

    return np.sum(in_pieces(agreement.size, work, piece), axis=0).reshape(2, 256)


def largest_magnitude(values: Vector) -> np.float32:
    """The largest |value| of a slice; 0 if it is empty, NaN or infinity if it has any."""
    return np.float32(np.maximum(values.max(initial=0), -values.min(initial=0)))


def finite(values: Vector) -> bool:
    """Whether no value of a slice is NaN or infinite."""
    return bool(largest_magnitude(values) < np.inf)


def in_pieces(size: int, work: Callable[[slice], Result], piece: int = SLICE) -> list[Result]:
    """The results of ``work`` on every slice of ``piece`` values, on several threads, in order."""
    return parallel(work, _slices(0, size, piece))


def _slices(start: int, stop: int, step: int) -> list[slice]:
    return [slice(at, min(at + step, stop)) for at in range(start, stop, step)]


@cache
def _compiled() -> ModuleType:
    from tallmasks.vectors import loops

    return loops


def _plain(vector: Vector) -> Vector:
    return read_only(np.require(np.asarray(vector), np.float32, ["C", "A"]))


def read_only(array: NDArray) -> NDArray:
    """A plain read-only view, so that memory maps and arrays use the same compiled loop."""
    if type(array) is np.ndarray and not array.flags.writeable:
        return array
    view = np.asarray(array)[:]
    view.flags.writeable = False
    return view
