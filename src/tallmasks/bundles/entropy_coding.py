"""The files of a bundle in fewer bytes: values put into an order in which they are alike, and deflated (RFC 1951).

A mask's bits are sorted by |tau_MTL|, which is known when they are read, and which says best how likely a weight is to
be kept: neighbours are then nearly equally likely, and Huffman codes of whole bytes, a table for every 16,384 of them,
come within two points of what an arithmetic coder would need.  Numbers are taken apart into planes, of their first
bytes, second bytes and so on: signs and exponents repeat, the rest does not.

A coded file holds one tensor, ``deflated`` uint8 [k], of all that it held before, wide dtypes first, then by name.
What is read was checked against its sha256 before.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Protocol

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


class Views(Protocol):
    """The tensors of an open file."""

    def view(self, name: str) -> NDArray: ...


class Order(Protocol):
    """How the values of some pieces of tensors become bytes that deflate well, and back."""

    def sizes(self, specs: Specs) -> dict[str, int]:
        """How many values each tensor has, in the order of the stream."""
        ...

    def count(self, pieces: list[Piece], specs: Specs) -> int:
        """How many bytes the pieces become."""
        ...

    def bytes_of(self, pieces: list[Piece], views: Views) -> Bytes: ...
    def put_back(self, pieces: list[Piece], block: Bytes, views: Views) -> None: ...


@dataclass(frozen=True)
class Decoded:
    """The tensors of a coded file, in memory."""

    arrays: Mapping[str, NDArray]

    def view(self, name: str) -> NDArray:
        """One of them, in its shape."""
        return self.arrays[name]


class Planes:
    """Numbers in planes: of all their first bytes, then of all their second ones."""

    def sizes(self, specs: Specs) -> dict[str, int]:
        return {name: specs[name].nbytes for name in file_order(specs)}

    def count(self, pieces: list[Piece], specs: Specs) -> int:
        return sum(stop - start for _, start, stop in pieces)

    def bytes_of(self, pieces: list[Piece], views: Views) -> Bytes:
        planes = []
        for item, group in self._alike(pieces, views):
            raw = np.concatenate([_raw(views, name)[start:stop] for name, start, stop in group])
            planes.append(raw.reshape(-1, item).T.reshape(-1))
        return np.concatenate(planes)

    def put_back(self, pieces: list[Piece], block: Bytes, views: Views) -> None:
        end = 0
        for item, group in self._alike(pieces, views):
            first, end = end, end + sum(stop - start for _, start, stop in group)
            raw, at = block[first:end].reshape(item, -1).T.reshape(-1), 0
            for name, start, stop in group:
                _raw(views, name)[start:stop] = raw[at : at + stop - start]
                at += stop - start

    @staticmethod
    def _alike(pieces: list[Piece], views: Views) -> list[tuple[int, list[Piece]]]:
        """The pieces by how many bytes their values have, in order."""
        grouped = groupby(pieces, key=lambda piece: views.view(piece[0]).itemsize)
        return [(item, list(group)) for item, group in grouped]


@dataclass(frozen=True)
class ByMagnitude:
    """A mask's bits by |tau_MTL|, of those in one bucket as they lie.

    ``tau``: values of tau_MTL as it is stored, ``(name, start, stop) -> float32``; ``values``: how many a tensor has.
    """

    tau: Callable[[str, int, int], NDArray[np.float32]]
    values: Mapping[str, int]

    def sizes(self, specs: Specs) -> dict[str, int]:
        return {name: self.values[name] for name in file_order(specs)}

    def count(self, pieces: list[Piece], specs: Specs) -> int:
        return -(-sum(stop - start for _, start, stop in pieces) // 8)

    def bytes_of(self, pieces: list[Piece], views: Views) -> Bytes:
        bits = [_bits(views.view(name)[start // 8 : -(-stop // 8)], stop - start) for name, start, stop in pieces]
        ordered = np.empty(sum(part.size for part in bits), np.uint8)
        self._sort(pieces, np.concatenate(bits), ordered, back=False)
        return np.packbits(ordered, bitorder="little")

    def put_back(self, pieces: list[Piece], block: Bytes, views: Views) -> None:
        bits, at = np.empty(sum(stop - start for _, start, stop in pieces), np.uint8), 0
        self._sort(pieces, bits, _bits(block, bits.size), back=True)
        for name, start, stop in pieces:
            part = np.packbits(bits[at : at + stop - start], bitorder="little")
            views.view(name)[start // 8 : -(-stop // 8)] = part
            at += stop - start

    def _sort(self, pieces: list[Piece], bits: Bytes, ordered: Bytes, *, back: bool) -> None:
        from tallmasks.bundles import update_loops

        update_loops.sort_bits(np.concatenate([self.tau(*piece) for piece in pieces]), bits, ordered, back)


def encode(path: Path, specs: Specs, views: Views, order: Order, said: Mapping[str, str]) -> None:
    """Write a coded file of what ``views`` holds, to a place where nothing is; ``said``: its metadata."""
    coder = zlib.compressobj(9, zlib.DEFLATED, -15, 8, zlib.Z_RLE)
    with TemporaryFile(dir=path.parent) as spool:
        for pieces in _chunks(order.sizes(specs)):
            spool.write(coder.compress(order.bytes_of(pieces, views).tobytes()))
        spool.write(coder.flush())
        size = spool.tell()
        spool.seek(0)
        with new_tensors(path, {STREAM: TensorSpec(np.dtype(np.uint8), (size,))}, said) as new:
            _read_into(spool, new.tensors[STREAM])


def decode(stream: Bytes, specs: Specs, order: Order, title: str) -> Decoded:
    """The tensors of a coded file; ``stream``: its one tensor, ``title``: what errors call it.

    Raises TallmasksError where it is no stream of these tensors.
    """
    if sum(spec.nbytes for spec in specs.values()) > _MOST_RATIO * stream.size + _MOST_RATIO:
        raise _no_stream(title, "it is too short for them")
    found = Decoded({name: np.empty(spec.shape, spec.dtype) for name, spec in specs.items()})
    for pieces, block in blocks(stream, specs, order, title):
        order.put_back(pieces, block, found)
    return found


def blocks(stream: Bytes, specs: Specs, order: Order, title: str) -> Iterator[tuple[list[Piece], Bytes]]:
    """The same in pieces, with their bytes as ``order`` has them: memory does not grow with what is decoded.

    Raises TallmasksError as :func:`decode`, on the way or at the end.
    """
    decoder, at = zlib.decompressobj(-15), 0
    try:
        for pieces in _chunks(order.sizes(specs)):
            missing = order.count(pieces, specs)
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
    counted = blocks(stream, specs, order, title)
    return sum(int(_bits(block, sum(stop - start for _, start, stop in pieces)).sum()) for pieces, block in counted)


def largest_and_last(stream: Bytes, specs: Specs, title: str) -> Decoded:
    """Of each tensor of bytes in a coded file that is no mask, its largest value and its last.

    Raises TallmasksError as :func:`blocks`.
    """
    found = {name: np.empty(0, spec.dtype) for name, spec in specs.items()}
    order = Planes()
    for pieces, block in blocks(stream, specs, order, title):
        sizes = {name: (stop - start) // specs[name].dtype.itemsize for name, start, stop in pieces}
        some = Decoded({name: np.empty(size, specs[name].dtype) for name, size in sizes.items()})
        order.put_back([(name, 0, stop - start) for name, start, stop in pieces], block, some)
        for name, values in some.arrays.items():
            if values.dtype == np.uint8:
                found[name] = np.array([np.append(found[name][:1], values).max(), values[-1]])
    return Decoded(found)


def _no_stream(title: str, why: str) -> TallmasksError:
    return TallmasksError(
        f"{title} is not the {CODER} stream of the tensors of bundle.json: {why}. It was not made by this package: get"
        " the bundle again."
    )


def _chunks(sizes: Mapping[str, int]) -> Iterator[list[Piece]]:
    """All values of tensors with so many of them, in pieces that begin at multiples of 8 of a tensor's own values."""
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


def _raw(views: Views, name: str) -> Bytes:
    return views.view(name).reshape(-1).view(np.uint8)


def _bits(packed: Bytes, count: int) -> Bytes:
    return np.unpackbits(packed, count=count, bitorder="little")


def _read_into(file: IO[bytes], target: Bytes) -> None:
    for start in range(0, target.size, _BUFFER):
        part = np.frombuffer(file.read(_BUFFER), np.uint8)
        target[start : start + part.size] = part
