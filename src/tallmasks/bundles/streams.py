"""Pieces of integers in a safetensors file, compressed by `pcodec`.

If at most one integer in eight is not 0, only those are stored: the gaps between their positions, and their values. The
file has two tensors for all pieces, and a third if they are multiples of steps:

    .lengths   uint32 [pieces, 2]: the bytes of the gaps and of the values; 0 gaps if all values are stored
    .streams   uint8 [bytes]: gaps and values of each piece, in the order of the tensors' names and then of their pieces
    .steps     float32 [pieces]: the step of each piece (see `vectors.multiples`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pcodec
from numpy.typing import DTypeLike, NDArray
from pcodec import standalone

from tallmasks.io.tensor_files import TensorInfo, header_of, library_order

LENGTHS, STREAMS, STEPS = ".lengths", ".streams", ".steps"
_FEW = 8
_CONFIG = pcodec.ChunkConfig(mode_spec=pcodec.ModeSpec.classic(), delta_spec=pcodec.DeltaSpec.no_op())
_ALIGNMENT = 64
_MOST_BYTES = 1 << 62  # reserves space in the header for the size of the streams


class Integers(NamedTuple):
    """The n integers of a piece. ``positions``: uint32 [k], ascending, if only the ``values`` there, [k], are not 0;
    None if ``values`` has all n."""

    positions: NDArray[np.uint32] | None
    values: NDArray

    def dense(self, size: int) -> NDArray:
        """All of them, [n]."""
        if self.positions is None:
            return self.values
        every = np.zeros(size, self.values.dtype)
        every[self.positions] = self.values
        return every


class Coded(NamedTuple):
    """A piece as stored. ``gaps``: a stream of uint32 [k], the number of zeros before each value; empty if all values
    are stored. Both are empty if all integers are 0."""

    gaps: bytes
    values: bytes

    @property
    def nbytes(self) -> int:
        return len(self.gaps) + len(self.values)


def few_of(integers: NDArray) -> Integers:
    """Without the zeros, if at most one value in `_FEW` is not 0."""
    is_changed = integers != 0
    if _FEW * np.count_nonzero(is_changed) > integers.size:
        return Integers(None, integers)
    (positions,) = np.nonzero(is_changed)
    return Integers(positions.astype(np.uint32), integers[positions])


def encoded(integers: NDArray) -> Coded:
    positions, values = few_of(integers)
    if positions is None:
        return Coded(b"", _compressed(values))
    gaps = np.diff(positions, prepend=np.uint32(2**32 - 1)) - np.uint32(1)  # the first one wraps around
    return Coded(_compressed(gaps), _compressed(values)) if values.size else Coded(b"", b"")


def decoded(piece: Coded, dtype: DTypeLike, size: int) -> Integers:
    """The integers of a piece of ``size`` values. Raises ValueError if a stream is damaged or does not fit."""
    if piece.values and not piece.gaps:
        return Integers(None, _decompressed(piece.values, np.empty(size, dtype), size))
    gaps = _decompressed(piece.gaps, np.empty(size // _FEW, np.uint32)) if piece.gaps else np.empty(0, np.uint32)
    positions = np.cumsum(gaps, dtype=np.int64) + np.arange(gaps.size)
    if gaps.size and positions[-1] >= size:
        raise ValueError(f"found a value at position {positions[-1]}; expected at most {size - 1}")
    values = np.empty(gaps.size, dtype)
    return Integers(
        positions.astype(np.uint32), _decompressed(piece.values, values, gaps.size) if gaps.size else values
    )


def _compressed(integers: NDArray) -> bytes:
    return standalone.simple_compress(np.ascontiguousarray(integers), _CONFIG)


def _decompressed(stream: bytes, out: NDArray, size: int | None = None) -> NDArray:
    """The values of a stream, at most as many as ``out`` has room for; exactly ``size`` if given."""
    try:
        progress = standalone.simple_decompress_into(stream, out)
    except (TypeError, RuntimeError) as error:
        raise ValueError(" ".join(str(error).split())[:150]) from None
    if not progress.finished or size not in (None, progress.n_processed):
        expected = f"at most {out.size}" if size is None else size
        raise ValueError(f"found {progress.n_processed} values or more; expected {expected}")
    return out[: progress.n_processed]


def mask_words(packed: NDArray[np.uint8], size: int) -> NDArray[np.uint16]:
    """A mask of ``size`` values as it is encoded, uint16 [ceil(size / 16)], from packed bits, uint8 [ceil(size / 8)],
    lowest first, whose padding is undefined."""
    bits = np.packbits(np.unpackbits(packed, count=size, bitorder="little"), bitorder="little")
    return np.pad(bits, (0, bits.size % 2)).view(np.uint16)


def stream_infos(pieces: int, with_steps: bool, nbytes: int = 0) -> dict[str, TensorInfo]:
    """The tensors of streams with ``nbytes`` bytes."""
    steps = {STEPS: TensorInfo("F32", (pieces,))} if with_steps else {}
    return {**steps, LENGTHS: TensorInfo("U32", (pieces, 2)), STREAMS: TensorInfo("U8", (nbytes,))}


def stored_piece(tensors: Mapping[str, NDArray], ends: NDArray[np.int64], number: int) -> Coded:
    """A piece of a file. ``ends``: of :func:`ends_of_pieces`."""
    gaps, values = map(int, tensors[LENGTHS][number])
    both = tensors[STREAMS][int(ends[number]) - gaps - values : int(ends[number])].tobytes()
    return Coded(both[:gaps], both[gaps:])


def ends_of_pieces(tensors: Mapping[str, NDArray]) -> NDArray[np.int64]:
    """Where the streams of each piece end, [pieces]. Raises ValueError if they have other bytes than the file."""
    ends = np.cumsum(tensors[LENGTHS].sum(axis=1, dtype=np.int64))
    if (expected := ends[-1] if ends.size else 0) != tensors[STREAMS].size:
        raise ValueError(f"the streams have {tensors[STREAMS].size} bytes; expected {expected}")
    return ends


@dataclass
class NewStreams:
    """A file being written. ``raw``: the bytes of its other tensors, uint8 [nbytes], to be filled."""

    raw: Mapping[str, NDArray[np.uint8]]
    _file: BinaryIO
    _lengths: list[tuple[int, int]] = field(default_factory=list)
    _steps: list[np.float32] = field(default_factory=list)

    def append(self, piece: Coded, step: np.float32 | None = None) -> None:
        """Writes the next piece. ``step``: of it, if the file has steps."""
        self._file.write(piece.gaps + piece.values)
        self._lengths.append((len(piece.gaps), len(piece.values)))
        if step is not None:
            self._steps.append(step)


@contextmanager
def new_streams(
    path: Path, others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, metadata: Mapping[str, str]
) -> Iterator[NewStreams]:
    """Creates a file for the streams of this many pieces, and for other tensors. The streams are its last tensor, since
    their size is known at the end only."""
    start = _start_of_data(others, pieces, with_steps, metadata)
    before = {name: info.nbytes for name, info in _infos(others, pieces, with_steps).items()}
    ends = [*accumulate(before.values(), initial=start)]
    path.parent.mkdir(exist_ok=True)
    with path.open("w+b") as file:
        file.truncate(ends[-1])
        file.seek(ends[-1])
        mapped = np.memmap(path, np.uint8, mode="r+", shape=(ends[-1],))
        raw = {name: np.asarray(mapped[slice(*pair)]) for name, pair in zip(before, pairwise(ends), strict=True)}
        new = NewStreams({name: raw[name] for name in others}, file)
        yield new
        lengths = np.array(new._lengths, np.uint32).reshape(-1)
        raw[LENGTHS].view(np.uint32)[:] = lengths
        if with_steps:
            raw[STEPS].view(np.float32)[:] = new._steps
        header = header_of(_infos(others, pieces, with_steps, int(lengths.sum(dtype=np.int64))), metadata, start)
        mapped[:start] = np.frombuffer(header, np.uint8)
        mapped.flush()


def bytes_without_pieces(
    others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, metadata: Mapping[str, str]
) -> int:
    """The size of the file that :func:`new_streams` writes, without the `bytes_of_piece` of each."""
    return _start_of_data(others, pieces, with_steps, metadata) + sum(info.nbytes for info in others.values())


def bytes_of_piece(piece: Coded, step: np.float32 | None) -> int:
    """With its lengths and its step."""
    return piece.nbytes + (8 if step is None else 12)


def _infos(others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, nbytes: int = 0) -> dict[str, TensorInfo]:
    of_streams = stream_infos(pieces, with_steps, nbytes)
    last = {STREAMS: of_streams.pop(STREAMS)}
    return {**library_order({**others, **of_streams}), **last}


def _start_of_data(others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, metadata: Mapping[str, str]) -> int:
    header = header_of(_infos(others, pieces, with_steps, _MOST_BYTES), metadata)
    return -(-len(header) // _ALIGNMENT) * _ALIGNMENT
