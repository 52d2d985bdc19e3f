"""Integers in a safetensors file, compressed by `pcodec`: one stream for each piece of each tensor.

The file has two tensors for them, and a third if they are multiples of steps:

    .lengths   uint32 [pieces]: the bytes of each stream
    .streams   uint8 [bytes]: the streams, in the order of the tensors' names and then of their pieces
    .steps     float32 [pieces]: the step of each piece (see `vectors.multiples`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pcodec
from numpy.typing import DTypeLike, NDArray
from pcodec import standalone

from tallmasks.io.tensor_files import TensorInfo, header_of, library_order

LENGTHS, STREAMS, STEPS = ".lengths", ".streams", ".steps"
_CONFIG = pcodec.ChunkConfig(mode_spec=pcodec.ModeSpec.classic(), delta_spec=pcodec.DeltaSpec.no_op())
_ALIGNMENT = 64
_MOST_BYTES = 1 << 62  # reserves space in the header for the size of the streams


def encoded(integers: NDArray) -> bytes:
    return standalone.simple_compress(np.ascontiguousarray(integers), _CONFIG)


def decoded(stream: NDArray[np.uint8], dtype: DTypeLike, size: int) -> NDArray:
    """The integers of a stream, [size]. Raises ValueError if it is damaged or has another number of them or dtype."""
    out = np.empty(size, dtype)
    try:
        progress = standalone.simple_decompress_into(stream.tobytes(), out)
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
    return {**steps, LENGTHS: TensorInfo("U32", (pieces,)), STREAMS: TensorInfo("U8", (nbytes,))}


def split_streams(tensors: Mapping[str, NDArray]) -> list[NDArray[np.uint8]]:
    """The streams of a file. Raises ValueError if their lengths are not those of the bytes."""
    streams, ends = tensors[STREAMS], [*accumulate(map(int, tensors[LENGTHS]), initial=0)]
    if ends[-1] != streams.size:
        raise ValueError(f"the streams have {streams.size} bytes; expected {ends[-1]}")
    return [streams[start:stop] for start, stop in pairwise(ends)]


@dataclass
class NewStreams:
    """A file being written. ``raw``: the bytes of its other tensors, uint8 [nbytes], to be filled."""

    raw: Mapping[str, NDArray[np.uint8]]
    _file: BinaryIO
    _lengths: list[int] = field(default_factory=list)
    _steps: list[np.float32] = field(default_factory=list)

    def append(self, stream: bytes, step: np.float32 | None = None) -> None:
        """Writes the next stream. ``step``: of its piece, if the file has steps."""
        self._file.write(stream)
        self._lengths.append(len(stream))
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
        raw[LENGTHS].view(np.uint32)[:] = new._lengths
        if with_steps:
            raw[STEPS].view(np.float32)[:] = new._steps
        header = header_of(_infos(others, pieces, with_steps, sum(new._lengths)), metadata, start)
        mapped[:start] = np.frombuffer(header, np.uint8)
        mapped.flush()


def bytes_without_pieces(
    others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, metadata: Mapping[str, str]
) -> int:
    """The size of the file that :func:`new_streams` writes, without the `bytes_of_piece` of each."""
    return _start_of_data(others, pieces, with_steps, metadata) + sum(info.nbytes for info in others.values())


def bytes_of_piece(stream: bytes, step: np.float32 | None) -> int:
    """With its length and its step."""
    return len(stream) + (4 if step is None else 8)


def _infos(others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, nbytes: int = 0) -> dict[str, TensorInfo]:
    of_streams = stream_infos(pieces, with_steps, nbytes)
    last = {STREAMS: of_streams.pop(STREAMS)}
    return {**library_order({**others, **of_streams}), **last}


def _start_of_data(others: Mapping[str, TensorInfo], pieces: int, with_steps: bool, metadata: Mapping[str, str]) -> int:
    header = header_of(_infos(others, pieces, with_steps, _MOST_BYTES), metadata)
    return -(-len(header) // _ALIGNMENT) * _ALIGNMENT
