"""What an entropy coder saves on the masks of a store, and on a bundle of tau_MTL and masks.

    python benchmarks/entropy.py store/tiny > entropy.csv

For every merge and benchmark in the store (one seed of each: the first whose TALL-mask evaluation is there) it takes
the masks at the lambdas chosen on validation data, 0.4 where none was chosen yet, and prints what they take as packed
bits and under each coder. The rows of the range coder marked `ideal` are code lengths from counts, for float32 alone;
the best three contexts of these are coded in every dtype of tau_MTL, decoded, and compared. Everything without that
mark is coded and decoded; headers of files count nowhere.

The range coder's models are static, from a first pass over each mask: a probability of 16 bits for every context that
occurs, which is stored and counted. `adaptive` is what the same contexts take with counts that are learnt on the way
(Krichevsky-Trofimov), not coded here. Contexts are products of

    tensor      which of the tensors
    agreement   how many of the masks coded before hold the weight
    which       which of the latest eight of them do
    magnitude   |tau_MTL| as it is stored: 0, or one of 32 quantiles of its tensor
    row, column eighths of the rows (columns) by the mask's density in them, 3 bits stored for each
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from tallmasks.masks.mask_bundles import MaskBundle, open_mask_bundle
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import Layout, open_tensors

try:
    import constriction
    import zstandard
except ImportError:
    constriction = zstandard = None

FALLBACK = 0.4
BUCKETS, EIGHTHS, LATEST, GROUP = 32, 8, 8, 8
TABLE_BITS, SIDE_BITS = 16, 3
MERGED = "masks packed, tau_MTL in byte planes"
DTYPES = ("float32", "bfloat16", "float16", "int8")
CONTEXTS = (
    (),
    ("tensor",),
    ("agreement",),
    ("which",),
    ("magnitude",),
    ("tensor", "magnitude"),
    ("agreement", "magnitude"),
    ("which", "magnitude"),
    ("tensor", "agreement", "magnitude"),
    ("row",),
    ("row", "magnitude"),
    ("row", "agreement", "magnitude"),
    ("row", "column", "magnitude"),
)
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Found:
    """One bundle of the store: masks [T, P'], tau_MTL float32 [P'], and where the lambdas are from."""

    merge: str
    seed: str
    lambdas: str
    layout: Layout
    merged: NDArray[np.float32]
    masks: Mask


@dataclass(frozen=True)
class Stored:
    """tau_MTL as a bundle holds it: the values that a reader gets, float32 [P'], and the bytes, [items, item size]."""

    dtype: str
    values: NDArray[np.float32]
    items: NDArray[np.uint8]
    scales: int

    @property
    def nbytes(self) -> int:
        return self.items.size + self.scales


@dataclass(frozen=True)
class Row:
    """A line of the table; bits are per weight, of all T masks, with tables; gains are percent of what was before.

    Rates are millions of bytes before coding (packed masks, or tau_MTL) per second, on one thread.
    """

    merge: str
    tasks: int
    seed: str
    lambdas: str
    dtype: str
    coder: str
    context: str
    mask_bits_before: float
    mask_bits_after: float
    mask_gain_percent: float
    adaptive_bits: float | None
    bundle_bytes_before: int
    bundle_bytes_after: int
    bundle_gain_percent: float
    encode_seconds: float | None
    decode_seconds: float | None
    encode_megabytes_per_second: float | None
    decode_megabytes_per_second: float | None


# -- what is in the store -------------------------------------------------------------------------------------


def bundles_of(store: Path) -> Iterator[Found]:
    """One bundle for each merge and benchmark. Raises TallmasksError where there is none."""
    chosen = {}
    for path in sorted(store.glob("derived/evaluations/tall_mask_*.json")):
        record = json.loads(path.read_text())
        chosen[record["recipe"]["inputs"]["mask_bundle"][0]] = dict(
            zip(record["tasks"], record["mask_lambda"], strict=True)
        )
    found: dict[tuple[str, int], list[tuple[bool, str, Path]]] = {}
    for path in sorted(store.glob("derived/mask_bundles/*.safetensors")):
        named = re.fullmatch(r"(\w+)-(\w+)-s(\d+)-([0-9a-f]+)", path.stem)
        if named:
            key = (named[1], len(open_mask_bundle(path).tasks))
            found.setdefault(key, []).append((named[4] not in chosen, named[3], path))
    if not found:
        raise TallmasksError(f"{store} has no derived/mask_bundles/; give a model's folder of a store, as store/tiny")
    for (merge, _), candidates in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        missing, seed, path = min(candidates)
        bundle = open_mask_bundle(path)
        digest = json.loads(bundle.tensors.metadata["recipe"])["inputs"]["multi_task_vector"][0]
        vectors = list(store.glob(f"derived/multi_task_vectors/*-{digest}.safetensors"))
        if not vectors:
            raise TallmasksError(
                f"{path} was made with a merged vector ({digest}) that the store lacks; build it again"
            )
        lambdas = dict.fromkeys(bundle.tasks, FALLBACK) if missing else chosen[path.stem.split("-")[-1]]
        merged = np.array(open_tensors(vectors[0]).flat())
        source = str(FALLBACK) if missing else "chosen"
        yield Found(merge, seed, source, bundle.layout, merged, masks_of(bundle, lambdas))


def masks_of(bundle: MaskBundle, lambdas: dict[str, float]) -> Mask:
    """Every task's mask at its lambda, [T, P']."""
    return np.array([bundle.mask(task, lambdas[task]) for task in bundle.tasks])


def stored_as(dtype: str, layout: Layout, merged: NDArray[np.float32]) -> Stored:
    """tau_MTL in one of DTYPES; int8 with a float32 scale for each row of the first axis, max |row| / 127."""
    if dtype == "float32":
        return Stored(dtype, merged, merged.view(np.uint8).reshape(-1, 4), 0)
    if dtype == "float16":
        halves = merged.astype(np.float16)
        return Stored(dtype, halves.astype(np.float32), halves.view(np.uint8).reshape(-1, 2), 0)
    if dtype == "bfloat16":
        patterns = merged.view(np.uint32)
        upper = ((patterns + np.uint32(0x7FFF) + ((patterns >> 16) & 1)) >> 16).astype(np.uint16)
        return Stored(dtype, (upper.astype(np.uint32) << 16).view(np.float32), upper.view(np.uint8).reshape(-1, 2), 0)
    rows, count = lines(layout, "row")
    largest = np.zeros(count, np.float32)
    np.maximum.at(largest, rows, np.abs(merged))
    scales = largest / np.float32(127)
    divisors = np.where(scales > 0, scales, np.float32(1))
    steps = np.rint(merged / divisors[rows]).astype(np.int8)
    return Stored(dtype, steps * scales[rows], steps.view(np.uint8).reshape(-1, 1), scales.nbytes)


def lines(layout: Layout, axis: str) -> tuple[NDArray[np.int32], int]:
    """The number of each weight's row (or column), int32 [P'], and how many there are; a vector is one of either."""
    parts, count = [], 0
    for shape in layout.shapes:
        size = math.prod(shape)
        rows = shape[0] if len(shape) > 1 else 1
        columns = size // rows if len(shape) > 1 else 1
        within = np.arange(size, dtype=np.int32)
        parts.append(count + (within // (size // rows) if axis == "row" else within % columns))
        count += rows if axis == "row" else columns
    return np.concatenate(parts).astype(np.int32), count


# -- contexts: what a decoder knows of the next mask's bits ---------------------------------------------------


@dataclass
class Known:
    """tau_MTL, the masks coded so far, and the parts of contexts that follow from them."""

    layout: Layout
    values: NDArray[np.float32]
    coded: int = 0
    cached: dict[str, tuple[NDArray, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.agreement = np.zeros(self.layout.size, np.intp)
        self.latest = np.zeros(self.layout.size, np.intp)

    def add(self, mask: Mask) -> None:
        """One more mask is known."""
        self.agreement += mask
        self.latest = ((self.latest << 1) | mask) & ((1 << LATEST) - 1)
        self.coded += 1

    def contexts(self, parts: Sequence[str], sides: Sequence[NDArray[np.uint8]]) -> tuple[NDArray[np.intp], int]:
        """The number of each weight's context, intp [P'], and how many there can be; ``sides`` as :meth:`sides`."""
        numbers, count = np.zeros(self.layout.size, np.intp), 1
        eighths = dict(zip([part for part in parts if part in ("row", "column")], sides, strict=True))
        for part in parts:
            if part in eighths:
                values, limit = eighths[part][self.lines(part)[0]], EIGHTHS
            elif part == "agreement":
                values, limit = self.agreement, self.coded + 1
            elif part == "which":
                values, limit = self.latest, 1 << min(self.coded, LATEST)
            else:
                values, limit = self.fixed(part)
            numbers *= limit
            numbers += values
            count *= limit
        return numbers, count

    def sides(self, parts: Sequence[str], mask: Mask) -> list[NDArray[np.uint8]]:
        """For `row` and `column`: each line's eighth by the mask's density in it, uint8 [lines], eighths of weights."""
        made = []
        for axis in (part for part in parts if part in ("row", "column")):
            numbers, count = self.lines(axis)
            sizes = np.bincount(numbers, minlength=count)
            order = np.argsort(np.bincount(numbers, weights=mask, minlength=count) / sizes, kind="stable")
            middles = np.cumsum(sizes[order]) - sizes[order] / 2
            eighths = np.empty(count, np.uint8)
            eighths[order] = middles * EIGHTHS // self.layout.size
            made.append(eighths)
        return made

    def lines(self, axis: str) -> tuple[NDArray, int]:
        if axis not in self.cached:
            self.cached[axis] = lines(self.layout, axis)
        return self.cached[axis]

    def fixed(self, part: str) -> tuple[NDArray, int]:
        """`tensor` and `magnitude`, which no mask changes."""
        if part not in self.cached:
            tensors = self.layout.split(np.abs(self.values))
            if part == "tensor":
                numbers = [np.full(tensor.size, number) for number, tensor in enumerate(tensors.values())]
                self.cached[part] = np.concatenate(numbers), len(tensors)
            else:
                numbers = [quantiles(tensor.ravel()) for tensor in tensors.values()]
                self.cached[part] = np.concatenate(numbers), BUCKETS + 1
        return self.cached[part]


def quantiles(magnitudes: NDArray[np.float32]) -> NDArray[np.intp]:
    """0 for 0, else 1 + the bucket of the value among those that are not 0.

    The limits are values of the tensor, so that no rounding can part the decoder from the encoder.
    """
    held = np.sort(magnitudes[magnitudes > 0])
    limits = held[np.arange(1, BUCKETS) * held.size // BUCKETS] if held.size else held
    return np.where(magnitudes > 0, 1 + np.searchsorted(limits, magnitudes, side="right"), 0)


# -- coders ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coded:
    """What a coder wrote: everything that its decoder is given."""

    arrays: tuple[NDArray, ...]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


def ideal_bits(known: Known, parts: Sequence[str], masks: Mask) -> tuple[float, float]:
    """Bits of all masks: under static models, with tables, and under adaptive ones; both with their lines' bits."""
    static = adaptive = 0.0
    for mask in masks:
        sides = known.sides(parts, mask)
        numbers, count = known.contexts(parts, sides)
        both = np.bincount(numbers, minlength=count)
        ones = np.bincount(numbers[mask], minlength=count)
        ones, zeros = ones[both > 0], (both - ones)[both > 0]
        side = sum(SIDE_BITS * eighths.size for eighths in sides)
        for held in (ones, zeros):
            static -= float((held * np.log2(np.maximum(held, 1) / (ones + zeros))).sum())
        static += TABLE_BITS * ones.size + side
        adaptive -= float((betaln(ones + 0.5, zeros + 0.5) - betaln(0.5, 0.5)).sum()) / math.log(2)
        adaptive += side
        known.add(mask)
    return static, adaptive


def encode(known: Known, parts: Sequence[str], masks: Mask) -> Coded:
    """Masks as one stream of the range coder, with each mask's table and the eighths of its lines."""
    coder, model = constriction.stream.queue.RangeEncoder(), constriction.stream.model.Bernoulli(perfect=False)
    arrays = []
    for mask in masks:
        sides = known.sides(parts, mask)
        numbers, count = known.contexts(parts, sides)
        both = np.bincount(numbers, minlength=count)
        ones = np.bincount(numbers[mask], minlength=count)
        table = np.clip(np.rint(ones / np.maximum(both, 1) * (1 << TABLE_BITS)), 1, (1 << TABLE_BITS) - 1)
        coder.encode(mask.astype(np.int32), model, (table / (1 << TABLE_BITS))[numbers])
        arrays += [table[both > 0].astype(np.uint16), *map(packed_eighths, sides)]
        known.add(mask)
    return Coded((*arrays, coder.get_compressed()))


def decode(known: Known, parts: Sequence[str], coded: Coded, tasks: int) -> Mask:
    """The inverse of :func:`encode`, from tau_MTL and what was written alone: which contexts occur is known to it."""
    *arrays, words = coded.arrays
    coder, model = constriction.stream.queue.RangeDecoder(words), constriction.stream.model.Bernoulli(perfect=False)
    left = iter(arrays)
    axes = [part for part in parts if part in ("row", "column")]
    masks = np.empty((tasks, known.layout.size), np.bool_)
    for mask in masks:
        table = next(left)
        sides = [unpacked_eighths(next(left), known.lines(axis)[1]) for axis in axes]
        numbers, count = known.contexts(parts, sides)
        chances = np.zeros(count)
        chances[np.bincount(numbers, minlength=count) > 0] = table / (1 << TABLE_BITS)
        mask[:] = coder.decode(model, chances[numbers])
        known.add(mask)
    return masks


def packed_eighths(eighths: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Three bits each."""
    return np.packbits((eighths[:, None] >> np.arange(SIDE_BITS)) & 1)


def unpacked_eighths(packed: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    """The inverse of :func:`packed_eighths`."""
    bits = np.unpackbits(packed, count=SIDE_BITS * count).reshape(count, SIDE_BITS)
    return (bits << np.arange(SIDE_BITS, dtype=np.uint8)).sum(1, dtype=np.uint8)


def encode_groups(known: Known, masks: Mask) -> Coded:
    """A weight's bits in eight masks as one symbol, each bucket of magnitudes under a table of its own."""
    numbers, count = known.contexts(["magnitude"], [])
    order, ends = np.argsort(numbers.astype(np.uint8), kind="stable"), np.cumsum(np.bincount(numbers, minlength=count))
    coder, tables = constriction.stream.queue.RangeEncoder(), []
    for start in range(0, len(masks), GROUP):
        group = masks[start : start + GROUP]
        symbols = np.packbits(group, axis=0, bitorder="little")[0][order].astype(np.int32)
        for first, last in zip([0, *ends[:-1]], ends, strict=True):
            if first < last:
                counts = np.bincount(symbols[first:last], minlength=1 << len(group))
                tables.append(np.ceil(counts * ((1 << TABLE_BITS) - 1) / (last - first)).astype(np.uint16))
                coder.encode(symbols[first:last], of_counts(tables[-1]))
    return Coded((*tables, coder.get_compressed()))


def decode_groups(known: Known, coded: Coded, tasks: int) -> Mask:
    """The inverse of :func:`encode_groups`."""
    *tables, words = coded.arrays
    numbers, count = known.contexts(["magnitude"], [])
    order, sizes = np.argsort(numbers.astype(np.uint8), kind="stable"), np.bincount(numbers, minlength=count)
    coder, left = constriction.stream.queue.RangeDecoder(words), iter(tables)
    symbols, parts = np.empty(known.layout.size, np.uint8), []
    for start in range(0, tasks, GROUP):
        symbols[order] = np.concatenate([coder.decode(of_counts(next(left)), int(size)) for size in sizes if size])
        parts.append(np.unpackbits(symbols[None], axis=0, count=min(GROUP, tasks - start), bitorder="little"))
    return np.concatenate(parts).view(np.bool_)


def of_counts(table: NDArray[np.uint16]) -> constriction.stream.model.Categorical:
    """Symbols as often as a table says."""
    return constriction.stream.model.Categorical(table / table.sum(dtype=np.float64), perfect=False)


# -- the table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """One bundle in one dtype, and the rows that it gives."""

    found: Found
    stored: Stored

    @property
    def packed(self) -> NDArray[np.uint8]:
        """The masks as they are shipped now, uint8 [T, ceil(P' / 8)]."""
        return np.packbits(self.found.masks, axis=1, bitorder="little")

    def known(self) -> Known:
        """What a decoder starts with."""
        return Known(self.found.layout, self.stored.values)

    def ideal(self, parts: Sequence[str]) -> Row:
        """A context by its counts."""
        static, adaptive = ideal_bits(self.known(), parts, self.found.masks)
        return self.row("range (ideal)", parts, static / 8, adaptive=adaptive)

    def coded(self) -> Iterator[Row]:
        """What needs no model of the masks, and the range coder on eight masks at once."""
        held, masks, packed = self.stored.values != 0, self.found.masks, self.packed
        tasks, size = masks.shape

        def bits_of_held() -> NDArray[np.uint8]:
            return np.packbits(masks[:, held], axis=1)

        def updates_of(bits: NDArray[np.uint8]) -> Mask:
            masks = np.zeros((tasks, size), np.bool_)
            masks[:, held] = np.unpackbits(bits, axis=1, count=int(held.sum()))
            return masks

        yield self.timed("packed", ["nonzero"], bits_of_held, updates_of, masks & held)
        for level in (3, 19):
            write, read = zstandard.ZstdCompressor(level), zstandard.ZstdDecompressor()
            yield self.timed(
                f"zstandard {level}", [], lambda coder=write: coder.compress(packed), read.decompress, packed
            )
        planes = np.ascontiguousarray(self.stored.items.T)
        yield self.timed("zstandard 19", [MERGED], lambda: write.compress(planes), read.decompress, planes)
        yield self.timed(
            "range (8 masks a symbol)",
            ["magnitude"],
            lambda: encode_groups(self.known(), masks),
            lambda coded: decode_groups(self.known(), coded, tasks),
            masks,
        )

    def ranged(self, parts: Sequence[str]) -> Row:
        """A context, coded."""
        masks = self.found.masks
        return self.timed(
            "range",
            parts,
            lambda: encode(self.known(), parts, masks),
            lambda coded: decode(self.known(), parts, coded, len(masks)),
            masks,
        )

    def timed(self, coder: str, parts: Sequence[str], write: Callable, read: Callable, expected: NDArray) -> Row:
        """Code, decode, compare."""
        start = time.perf_counter()
        coded = write()
        middle = time.perf_counter()
        back = read(coded)
        end = time.perf_counter()
        if isinstance(back, bytes):
            back = np.frombuffer(back, np.uint8).reshape(expected.shape)
        if not np.array_equal(back, expected):
            raise TallmasksError(f"{coder}, {parts}: other masks came back than were coded")
        size = len(coded) if isinstance(coded, bytes) else coded.nbytes
        return self.row(coder, parts, size, seconds=(middle - start, end - middle))

    def row(
        self,
        coder: str,
        parts: Sequence[str],
        size: float,
        adaptive: float | None = None,
        seconds: tuple[float, float] | None = None,
    ) -> Row:
        """A line, from the bytes that a coder wrote of the masks, or of tau_MTL."""
        found, stored, packed = self.found, self.stored, self.packed.size
        of_merged = MERGED in parts
        masks, merged = (packed, size + stored.scales) if of_merged else (size, stored.nbytes)
        before, after = stored.nbytes + packed, math.ceil(masks + merged)
        given = stored.items.size if of_merged else packed
        return Row(
            found.merge,
            len(found.masks),
            found.seed,
            found.lambdas,
            stored.dtype,
            coder,
            " x ".join(parts),
            round(8 * packed / found.layout.size, 4),
            round(8 * masks / found.layout.size, 4),
            round(100 * (1 - masks / packed), 2),
            None if adaptive is None else round(adaptive / found.layout.size, 4),
            before,
            after,
            round(100 * (1 - after / before), 2),
            *(round(value, 3) if seconds else None for value in seconds or (0, 0)),
            *(round(given / 1e6 / value, 2) if seconds else None for value in seconds or (1, 1)),
        )


def rows_of(found: Found) -> Iterator[Row]:
    """Every coder and context on one bundle."""
    first = Trial(found, stored_as("float32", found.layout, found.merged))
    scanned = {parts: first.ideal(parts) for parts in CONTEXTS}
    yield from scanned.values()
    best = sorted(CONTEXTS, key=lambda parts: scanned[parts].mask_bits_after)[:3]
    for dtype in DTYPES:
        trial = Trial(found, stored_as(dtype, found.layout, found.merged))
        yield from trial.coded()
        for parts in best:
            yield trial.ranged(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="a model's folder in a store, as store/tiny")
    arguments = parser.parse_args()
    if zstandard is None:
        sys.exit("one of them is not here, and the project does without: pip install constriction zstandard")
    table = csv.writer(sys.stdout, lineterminator="\n")
    try:
        for number, found in enumerate(bundles_of(arguments.store)):
            if number == 0:
                table.writerow([column.name for column in fields(Row)])
            for row in rows_of(found):
                table.writerow(astuple(row))
            sys.stdout.flush()
    except TallmasksError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
