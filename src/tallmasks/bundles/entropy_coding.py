"""The files of a bundle in fewer bytes: values are put into an order in which neighbours are alike, and deflated.

A mask's bits are sorted by |tau_MTL|, which best predicts whether a weight is kept.  Huffman codes of whole bytes then
come within two points of an arithmetic coder.  Numbers are split into planes: all first bytes, all second bytes, and so
on, because signs and exponents repeat.

A coded file holds one tensor, ``deflated`` uint8 [k] (RFC 1951), of all its tensors.  Wide dtypes come first, then
names decide. Its sha256 is checked before it is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.manifest import CODER
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import TensorSpec, file_order, new_tensors

STREAM = "deflated"
CHUNK = 1 << 22
"""Values that are put into order at once; a multiple of 8."""
_BUFFER = 1 << 20
_MOST_RATIO = 1100
"""More than deflate can save: what claims more is no file of this package."""

Specs = Mapping[str, TensorSpec]
Piece = tuple[str, int, int]
Bytes = NDArray[np.uint8]
Arrays = Mapping[str, NDArray]
"""The tensors of a file by name, in their shapes."""


class Planes:
    """Numbers in planes: all their first bytes, then all their second ones.  Every order has these four methods."""

    def sizes(self, specs: Specs) -> dict[str, int]:
        """How many values each tensor has, in the order of the stream."""
        return {name: specs[name].nbytes for name in file_order(specs)}

    def count(self, pieces: list[Piece]) -> int:
        """How many bytes the pieces become."""
        return _values(pieces)

    def bytes_of(self, pieces: list[Piece], tensors: Arrays) -> Bytes:
        """The values of pieces as bytes that deflate well."""
        planes = []
        for item, group in self._alike(pieces, tensors):
            raw = np.concatenate([_raw(tensors[name])[start:stop] for name, start, stop in group])
            planes.append(raw.reshape(-1, item).T.reshape(-1))
        return np.concatenate(planes)

    def put_back(self, pieces: list[Piece], block: Bytes, tensors: Arrays) -> None:
        """The inverse of `bytes_of`: writes into ``tensors``."""
        end = 0
        for item, group in self._alike(pieces, tensors):
            first, end = end, end + _values(group)
            raw, at = block[first:end].reshape(item, -1).T.reshape(-1), 0
            for name, start, stop in group:
                _raw(tensors[name])[start:stop] = raw[at : at + stop - start]
                at += stop - start

    @staticmethod
    def _alike(pieces: list[Piece], tensors: Arrays) -> list[tuple[int, list[Piece]]]:
        """The pieces grouped by the width of their values, in order."""
        grouped = groupby(pieces, key=lambda piece: tensors[piece[0]].itemsize)
        return [(item, list(group)) for item, group in grouped]


@dataclass(frozen=True)
class ByMagnitude:
    """A mask's bits sorted by |tau_MTL|; bits of one bucket keep their order.

    ``tau``: stored values of tau_MTL, ``(name, start, stop) -> float32``; ``values``: how many each tensor has.
    """

    tau: Callable[[str, int, int], NDArray[np.float32]]
    values: Mapping[str, int]

    def sizes(self, specs: Specs) -> dict[str, int]:
        return {name: self.values[name] for name in file_order(specs)}

    def count(self, pieces: list[Piece]) -> int:
        return -(-_values(pieces) // 8)

    def bytes_of(self, pieces: list[Piece], tensors: Arrays) -> Bytes:
        bits = [_bits(tensors[name][start // 8 : -(-stop // 8)], stop - start) for name, start, stop in pieces]
        ordered = np.empty(_values(pieces), np.uint8)
        self._sort(pieces, np.concatenate(bits), ordered, back=False)
        return np.packbits(ordered, bitorder="little")

    def put_back(self, pieces: list[Piece], block: Bytes, tensors: Arrays) -> None:
        bits, at = np.empty(_values(pieces), np.uint8), 0
        self._sort(pieces, bits, _bits(block, bits.size), back=True)
        for name, start, stop in pieces:
            tensors[name][start // 8 : -(-stop // 8)] = np.packbits(bits[at : at + stop - start], bitorder="little")
            at += stop - start

    def _sort(self, pieces: list[Piece], bits: Bytes, ordered: Bytes, *, back: bool) -> None:
        from tallmasks.bundles import update_loops

        update_loops.sort_bits(np.concatenate([self.tau(*piece) for piece in pieces]), bits, ordered, back)


Order = Planes | ByMagnitude


def encode(path: Path, specs: Specs, tensors: Arrays, order: Order, metadata: Mapping[str, str]) -> None:
    """Write a new coded file of these tensors."""
    coder = zlib.compressobj(9, zlib.DEFLATED, -15, 8, zlib.Z_RLE)
    with TemporaryFile(dir=path.parent) as spool:
        for pieces in _chunks(order.sizes(specs)):
            spool.write(coder.compress(order.bytes_of(pieces, tensors).tobytes()))
        spool.write(coder.flush())
        size = spool.tell()
        spool.seek(0)
        with new_tensors(path, {STREAM: TensorSpec(np.dtype(np.uint8), (size,))}, metadata) as new:
            spool.readinto(new.tensors[STREAM].data)


def decode(stream: Bytes, specs: Specs, order: Order, title: str) -> Arrays:
    """The tensors of a coded file; ``stream``: its one tensor, ``title``: what errors call it.

    Raises TallmasksError where it is no stream of these tensors.
    """
    if sum(spec.nbytes for spec in specs.values()) > _MOST_RATIO * stream.size + _MOST_RATIO:
        raise _no_stream(title, "it is too short for them")
    tensors = {name: np.empty(spec.shape, spec.dtype) for name, spec in specs.items()}
    for pieces, block in blocks(stream, specs, order, title):
        order.put_back(pieces, block, tensors)
    return tensors


def blocks(stream: Bytes, specs: Specs, order: Order, title: str) -> Iterator[tuple[list[Piece], Bytes]]:
    """The same in pieces, as bytes in the stream's order, in bounded memory.  Raises as :func:`decode`, at any step."""
    decoder, at = zlib.decompressobj(-15), 0
    try:
        for pieces in _chunks(order.sizes(specs)):
            missing = order.count(pieces)
            parts: list[bytes] = []
            while missing:
                source = decoder.unconsumed_tail
                if not source:
                    source, at = stream[at : at + _BUFFER].tobytes(), at + _BUFFER
                part = decoder.decompress(source, missing)
                if not part and not decoder.unconsumed_tail and at >= stream.size:
                    raise _no_stream(title, "it ends early")
                parts.append(part)
                missing -= len(part)
            yield pieces, np.frombuffer(b"".join(parts), np.uint8)
        rest = decoder.decompress(decoder.unconsumed_tail + stream[at:].tobytes(), 1)
    except zlib.error as error:
        raise _no_stream(title, str(error)) from None
    if rest or not decoder.eof or decoder.unused_data:
        raise _no_stream(title, "there is more behind them")


def ones(stream: Bytes, specs: Specs, order: ByMagnitude, title: str) -> int:
    """How many bits are 1 in a coded file of masks.  Raises TallmasksError as :func:`blocks`."""
    return sum(int(_bits(block, _values(pieces)).sum()) for pieces, block in blocks(stream, specs, order, title))


def largest_and_last(stream: Bytes, specs: Specs, title: str) -> Arrays:
    """The largest value and the last of each uint8 tensor in a coded file without masks.  Raises as :func:`blocks`."""
    extremes = {name: np.empty(0, spec.dtype) for name, spec in specs.items()}
    order = Planes()
    for pieces, block in blocks(stream, specs, order, title):
        sizes = {name: (stop - start) // specs[name].dtype.itemsize for name, start, stop in pieces}
        part = {name: np.empty(size, specs[name].dtype) for name, size in sizes.items()}
        order.put_back([(name, 0, stop - start) for name, start, stop in pieces], block, part)
        for name, values in part.items():
            if values.dtype == np.uint8:
                extremes[name] = np.array([np.append(extremes[name][:1], values).max(), values[-1]])
    return extremes


def _no_stream(title: str, why: str) -> TallmasksError:
    return TallmasksError(
        f"{title} is not the {CODER} stream of the tensors of bundle.json: {why}. It was not made by this package: get"
        " the bundle again."
    )


def _chunks(sizes: Mapping[str, int]) -> Iterator[list[Piece]]:
    """All values, ``CHUNK`` at a time, in pieces that begin at multiples of 8 of a tensor's values."""
    chunk: list[Piece] = []
    room = CHUNK
    for name, size in sizes.items():
        start = 0
        while start < size:
            stop = min(start + room, size)
            chunk.append((name, start, stop))
            room -= -(-(stop - start) // 8) * 8
            start = stop
            if room <= 0:
                yield chunk
                chunk, room = [], CHUNK
    if chunk:
        yield chunk


def _values(pieces: list[Piece]) -> int:
    return sum(stop - start for _, start, stop in pieces)


def _raw(tensor: NDArray) -> Bytes:
    return tensor.reshape(-1).view(np.uint8)


def _bits(packed: Bytes, count: int) -> Bytes:
    return np.unpackbits(packed, count=count, bitorder="little")
