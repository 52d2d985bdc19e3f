"""Pieces of integers in a safetensors file, compressed by `pcodec`.

If at most one integer in eight is not 0, only those are stored: the gaps between their positions, and their values. The
file has two tensors for all pieces, and a third if they are multiples of steps:

    .index     uint32 [pieces, 3]: the number of values stored, and the bytes of gaps and of values
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

INDEX, STREAMS, STEPS = ".index", ".streams", ".steps"
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
    """A piece as stored. ``gaps``: a stream of uint32 [count], the number of zeros before each value; empty if all
    values of the piece are stored."""

    count: int
    gaps: bytes
    values: bytes


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
        return Coded(values.size, b"", _compressed(values))
    gaps = np.diff(positions, prepend=np.uint32(2**32 - 1)) - np.uint32(1)  # the first one wraps around
    return Coded(values.size, *map(_compressed, (gaps, values))) if values.size else Coded(0, b"", b"")


def decoded(piece: Coded, dtype: DTypeLike, size: int) -> Integers:
    """The integers of a piece of ``size`` values. Raises ValueError if a stream is damaged or does not fit."""
    if piece.count == size:
        return Integers(None, _decompressed(piece.values, dtype, size))
    if _FEW * piece.count > size:
        raise ValueError(f"found {piece.count} values; expected {size}, or at most {size // _FEW}")
    gaps = _decompressed(piece.gaps, np.uint32, piece.count)
    positions = np.cumsum(gaps, dtype=np.int64) + np.arange(piece.count)
    if piece.count and positions[-1] >= size:
        raise ValueError(f"found a value at position {positions[-1]}; expected at most {size - 1}")
    return Integers(positions.astype(np.uint32), _decompressed(piece.values, dtype, piece.count))


def _compressed(integers: NDArray) -> bytes:
    return standalone.simple_compress(np.ascontiguousarray(integers), _CONFIG)


def _decompressed(stream: bytes, dtype: DTypeLike, size: int) -> NDArray:
    out = np.empty(size, dtype)
    if not size:
        return out
    try:
        progress = standalone.simple_decompress_into(stream, out)
    except (TypeError, RuntimeError) as error:
        raise ValueError(" ".join(str(error).split())[:150]) from None
    if progress.n_processed != size or not progress.finished:
        raise ValueError(f"found {progress.n_processed} values or more; expected {size}")
    return out


def mask_words(packed: NDArray[np.uint8], size: int) -> NDArray[np.uint16]:
    """A mask of ``size`` values as it is encoded, uint16 [ceil(size / 16)], from packed bits, uint8 [ceil(size / 8)],
    lowest first, whose padding is undefined."""
    bits = np.packbits(np.unpackbits(packed, count=size, bitorder="little"), bitorder="little")
    return np.pad(bits, (0, bits.size % 2)).view(np.uint16)


def stream_infos(pieces: int, with_steps: bool, nbytes: int = 0) -> dict[str, TensorInfo]:
    """The tensors of streams with ``nbytes`` bytes."""
    steps = {STEPS: TensorInfo("F32", (pieces,))} if with_steps else {}
    return {**steps, INDEX: TensorInfo("U32", (pieces, 3)), STREAMS: TensorInfo("U8", (nbytes,))}


def stored_piece(tensors: Mapping[str, NDArray], ends: NDArray[np.int64], number: int) -> Coded:
    """A piece of a file. ``ends``: of :func:`ends_of_pieces`."""
    count, gaps, values = map(int, tensors[INDEX][number])
    stop = int(ends[number])
    middle = stop - values
    return Coded(
        count, *(tensors[STREAMS][start:end].tobytes() for start, end in ((middle - gaps, middle), (middle, stop)))
    )


def ends_of_pieces(tensors: Mapping[str, NDArray]) -> NDArray[np.int64]:
    """Where the streams of each piece end, [pieces]. Raises ValueError if they have other bytes than the file."""
    ends = np.cumsum(tensors[INDEX][:, 1:].sum(axis=1, dtype=np.int64))
    if (expected := ends[-1] if ends.size else 0) != tensors[STREAMS].size:
        raise ValueError(f"the streams have {tensors[STREAMS].size} bytes; expected {expected}")
    return ends


@dataclass
class NewStreams:
    """A file being written. ``raw``: the bytes of its other tensors, uint8 [nbytes], to be filled."""

    raw: Mapping[str, NDArray[np.uint8]]
    _file: BinaryIO
    _index: list[tuple[int, int, int]] = field(default_factory=list)
    _steps: list[np.float32] = field(default_factory=list)

    def append(self, piece: Coded, step: np.float32 | None = None) -> None:
        """Writes the next piece. ``step``: of it, if the file has steps."""
        self._file.write(piece.gaps + piece.values)
        self._index.append((piece.count, len(piece.gaps), len(piece.values)))
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
        index = np.array(new._index, np.uint32).reshape(-1, 3)
        raw[INDEX].view(np.uint32)[:] = index.reshape(-1)
        if with_steps:
            raw[STEPS].view(np.float32)[:] = new._steps
        header = header_of(_infos(others, pieces, with_steps, int(index[:, 1:].sum())), metadata, start)
        mapped[:start] = np.frombuffer(header, np.uint8)
        mapped.flush()


def bytes_without_pieces(
    others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, metadata: Mapping[str, str]
) -> int:
    """The size of the file that :func:`new_streams` writes, without the `bytes_of_piece` of each."""
    return _start_of_data(others, pieces, with_steps, metadata) + sum(info.nbytes for info in others.values())


def bytes_of_piece(piece: Coded, step: np.float32 | None) -> int:
    """With its row of the index and its step."""
    return len(piece.gaps) + len(piece.values) + (12 if step is None else 16)


def _infos(others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, nbytes: int = 0) -> dict[str, TensorInfo]:
    of_streams = stream_infos(pieces, with_steps, nbytes)
    last = {STREAMS: of_streams.pop(STREAMS)}
    return {**library_order({**others, **of_streams}), **last}


def _start_of_data(others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, metadata: Mapping[str, str]) -> int:
    header = header_of(_infos(others, pieces, with_steps, _MOST_BYTES), metadata)
    return -(-len(header) // _ALIGNMENT) * _ALIGNMENT
