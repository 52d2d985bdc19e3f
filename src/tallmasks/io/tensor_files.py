"""Tensors in safetensors files: read lazily and in pieces, written atomically. A *flat* vector is the concatenation of
tensors of one dtype in sorted-name order. It is the data section of a safetensors file, so it can be memory-mapped."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError, safe_open

from tallmasks.errors import TallmasksError, name_some, one_line
from tallmasks.io.atomic_files import atomic_path
from tallmasks.io.content_digests import CONTENT, content_of_tensors
from tallmasks.io.dtypes import DTYPES, FLOATS, bits_of, code_of, nbytes_of
from tallmasks.io.plain_files import open_plain

LARGEST_HEADER = 1 << 24  # bytes; the parsed header takes about 25 times as much memory
LONGEST_NAME = 1000  # characters of a tensor's name
NAME = f"a name of at most {LONGEST_NAME} characters without line breaks and control characters"  # see `is_name`
METADATA = "__metadata__"  # the key of a header that is no tensor
_ALIGNMENT = 64
_LATE_METADATA = 1024


class TensorInfo(NamedTuple):
    dtype: str  # safetensors code: ``F32``, ``BF16``, ``I64``, ...
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return nbytes_of(self.dtype, self.size)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors of a flat vector of P' values, in sorted-name order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: TensorFile | Mapping[str, NDArray]) -> Layout:
        shapes = tensors.shapes if isinstance(tensors, TensorFile) else {n: a.shape for n, a in tensors.items()}
        names = tuple(sorted(shapes))
        return cls(names, tuple(tuple(shapes[name]) for name in names))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        return tuple(part.start for part in self.parts.values())

    @cached_property
    def size(self) -> int:
        """P', the number of values."""
        return sum(map(math.prod, self.shapes))

    @cached_property
    def parts(self) -> dict[str, slice]:
        ends = accumulate(map(math.prod, self.shapes), initial=0)
        return {name: slice(*pair) for name, pair in zip(self.names, pairwise(ends), strict=True)}

    @cached_property
    def by_name(self) -> dict[str, tuple[int, ...]]:
        return dict(zip(self.names, self.shapes, strict=True))

    def split(self, flat: NDArray) -> dict[str, NDArray]:
        """Views of ``flat`` [P'] by tensor name, each in its own shape."""
        return {
            name: flat[part].reshape(shape) for (name, part), shape in zip(self.parts.items(), self.shapes, strict=True)
        }

    def join(self, tensors: Mapping[str, NDArray]) -> NDArray[np.float32]:
        """The flat float32 vector [P'] of tensors by name: the inverse of :meth:`split`."""
        flat = np.empty(self.size, np.float32)
        for name, view in self.split(flat).items():
            view[...] = tensors[name]
        return flat

    def describe_difference(self, other: Layout) -> str:
        """Missing, extra and wrongly shaped tensors of ``other``, for an error message; empty if equal."""
        mine, theirs = self.by_name, other.by_name
        wrong = [
            f"{name} (found {list(theirs[name])}, expected {list(mine[name])})"
            for name in self.names
            if name in theirs and theirs[name] != mine[name]
        ]
        parts = {
            "missing": [name for name in self.names if name not in theirs],
            "extra": [name for name in other.names if name not in mine],
            "wrongly shaped": wrong,
        }
        return "; ".join(f"{kind}: {name_some(names)}" for kind, names in parts.items() if names)

    def to_json(self) -> str:
        return json.dumps(self.by_name, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Layout:
        shapes = json.loads(text)
        return cls(tuple(shapes), tuple(tuple(shape) for shape in shapes.values()))


class TensorFile:
    """An open safetensors file. Tensors are read on demand."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._entries, self.metadata = _read_header(self.path)
        self._bytes = np.asarray(np.memmap(self.path, np.uint8, mode="r"))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(self._entries[name]["shape"]) for name in self.names}

    def dtype(self, name: str) -> str:
        """The safetensors code of a tensor's dtype: ``F32``, ``BF16``, ``U8``, ..."""
        return self._entry(name)["dtype"]

    def view(self, name: str) -> NDArray:
        """One tensor as stored, memory-mapped and read-only; bfloat16 is returned as uint16 bits."""
        code = self.dtype(name)
        if code not in DTYPES:
            raise TallmasksError(f"{self.path}: tensor {name} has unknown dtype {code}; save it as float32")
        try:
            return self.raw_bytes(name).view(DTYPES[code].numpy).reshape(self._entry(name)["shape"])
        except ValueError as error:  # for example 65 axes, or axes of size 2^62 and 0
            raise TallmasksError(f"{self.path}: tensor {name} is not a valid array: {error}") from None

    def array(self, name: str) -> NDArray:
        """As `view`, or the stored bytes if NumPy has no whole bytes for a value, as for F4."""
        return self.view(name) if self.dtype(name) in DTYPES else self.raw_bytes(name)

    def read(self, name: str) -> NDArray:
        """A copy of one tensor in its stored dtype; bfloat16 is returned as uint16 bits."""
        return self.view(name).copy()

    def flat(self, dtype: DTypeLike = np.float32) -> NDArray:
        """The data section as one read-only, memory-mapped vector [P'] of one dtype. Raises TallmasksError if the
        tensors have another dtype or are not in sorted-name order."""
        code = code_of(np.dtype(dtype))
        end = 0
        for name in self.names:
            start, stop = self._entries[name]["data_offsets"]
            if self.dtype(name) != code or start != end:
                raise TallmasksError(
                    f"{self.path}: tensor {name} ({self.dtype(name)}) does not fit a flat vector; expected {code}"
                    " tensors in the order of their names"
                )
            end = stop
        return np.require(self.data[:end].view(DTYPES[code].numpy), requirements="A")

    def raw_bytes(self, name: str) -> NDArray[np.uint8]:
        """The bytes of one tensor of any dtype, memory-mapped and read-only."""
        start, stop = self._entry(name)["data_offsets"]
        return self.data[start:stop]

    @property
    def infos(self) -> dict[str, TensorInfo]:
        """Dtype and shape of every tensor, in the order of their bytes."""
        ordered = sorted(self._entries.items(), key=lambda entry: entry[1]["data_offsets"])
        return {name: TensorInfo(entry["dtype"], tuple(entry["shape"])) for name, entry in ordered}

    @property
    def header(self) -> bytes:
        """What precedes the data section."""
        return self._bytes[: self._bytes.size - self.data.size].tobytes()

    @cached_property
    def data(self) -> NDArray[np.uint8]:
        """The data section, memory-mapped and read-only."""
        return self._bytes[8 + int(self._bytes[:8].view("<u8")[0]) :]

    def _entry(self, name: str) -> dict:
        try:
            return self._entries[name]
        except KeyError:
            raise TallmasksError(f"{self.path} has no tensor {name}; it has {name_some(self.names)}") from None


def open_tensors(path: Path | str, kind: str | None = None) -> TensorFile:
    """Open a safetensors file for lazy reading; ``kind`` is the required "format" in its metadata. Raises
    TallmasksError if the file is missing, damaged, or of another format."""
    tensors = TensorFile(path)
    actual = tensors.metadata.get("format")
    if kind is not None and actual != kind:
        raise TallmasksError(f"{path} has format {actual}; expected {kind}. Use another file, or create it again")
    return tensors


def read_metadata(path: Path | str) -> dict[str, str]:
    """The metadata of a safetensors file. Raises as :func:`open_tensors`."""
    return _read_header(Path(path))[1]


def load_state(path: Path | str) -> dict[str, NDArray]:
    tensors = open_tensors(path)
    return {name: tensors.read(name) for name in tensors.names}


def write_tensors(path: Path | str, tensors: Mapping[str, NDArray], metadata: Mapping[str, str]) -> None:
    """Write tensors by name, atomically; equal input gives equal bytes. Raises TallmasksError if the disk is full."""
    arrays = {name: np.asarray(array) for name, array in tensors.items()}
    infos = {name: TensorInfo(code_of(array.dtype), array.shape) for name, array in arrays.items()}
    with new_tensors(path, infos, metadata) as new:
        for name, array in arrays.items():
            new.tensors[name][...] = array


@dataclass
class NewTensors:
    """A safetensors file being written: writable arrays, and metadata that may still grow.

    Attributes:
        raw: the bytes of every tensor, uint8 [nbytes].
        tensors: every tensor in its shape; bfloat16 as uint16 bits, and dtypes that are not in `DTYPES` as bytes.
        data: the data section, uint8.
    """

    metadata: dict[str, str]
    raw: dict[str, NDArray[np.uint8]]
    tensors: dict[str, NDArray]
    data: NDArray[np.uint8]

    @property
    def flat(self) -> NDArray:
        """The data section as one writable vector; all tensors must have the same dtype."""
        (dtype,) = {array.dtype for array in self.tensors.values()} or {np.dtype(np.uint8)}
        return self.data.view(dtype)


@contextmanager
def new_tensors(path: Path | str, infos: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> Iterator[NewTensors]:
    """As :func:`new_tensor_file`, in the order of :func:`library_order`, with the digest of the content in the
    metadata. ``new.metadata`` may grow by 1 KiB until the exit."""
    infos = library_order(infos)
    with new_tensor_file(path, infos, metadata, late=_LATE_METADATA) as new:
        yield new
        new.metadata[CONTENT] = content_of_tensors(infos, new.data, new.metadata)


@contextmanager
def new_tensor_file(
    path: Path | str, infos: Mapping[str, TensorInfo], metadata: Mapping[str, str], header: bytes | None = None, *,
    late: int = 0, new: bool = False,
) -> Iterator[NewTensors]:  # fmt: skip
    """Create a safetensors file with tensors in this order, and fill it in pieces; it appears at ``path`` only on a
    clean exit.

    ``header``: what precedes the data, if it is given; ``late``: the bytes by which ``new.metadata`` may grow until the
    exit; ``new``: raise if ``path`` exists. Use the
    arrays only inside the ``with`` block. Raises TallmasksError before the first value is written if the disk is full.
    """
    size = bytes_in_order(infos, metadata, header, late)
    start = size - sum(info.nbytes for info in infos.values())
    with atomic_path(path, size, new=new) as part:
        mapped = np.memmap(part, np.uint8, mode="r+", shape=(size,))
        data = np.asarray(mapped[start:])
        ends = accumulate((info.nbytes for info in infos.values()), initial=0)
        raw = {name: data[slice(*pair)] for name, pair in zip(infos, pairwise(ends), strict=True)}
        tensors = {
            name: raw[name].view(DTYPES[info.dtype].numpy).reshape(info.shape) if info.dtype in DTYPES else raw[name]
            for name, info in infos.items()
        }
        content = NewTensors(dict(metadata), raw, tensors, data)
        yield content
        mapped[:start] = np.frombuffer(header or header_of(infos, content.metadata, start), np.uint8)
        mapped.flush()


def bytes_of_file(infos: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> int:
    """The size of the file that :func:`new_tensors` writes."""
    return bytes_in_order(library_order(infos), metadata, late=_LATE_METADATA)


def bytes_in_order(
    infos: Mapping[str, TensorInfo], metadata: Mapping[str, str], header: bytes | None = None, late: int = 0
) -> int:
    """The size of the file that :func:`new_tensor_file` writes."""
    start = len(header) if header else -(-(len(header_of(infos, metadata)) + late) // _ALIGNMENT) * _ALIGNMENT
    return start + sum(info.nbytes for info in infos.values())


def infos_of_header(header: bytes) -> dict[str, TensorInfo]:
    """The tensors of a header, in the order of their bytes. Raises ValueError, KeyError, TypeError or AttributeError if
    it is none."""
    entries = json.loads(header[8:])
    entries.pop(METADATA, None)
    ordered = sorted(entries.items(), key=lambda entry: entry[1]["data_offsets"])
    infos = {name: TensorInfo(entry["dtype"], tuple(entry["shape"])) for name, entry in ordered}
    ends = [*accumulate((info.nbytes for info in infos.values()), initial=0)]
    if [entry["data_offsets"] for _, entry in ordered] != [list(pair) for pair in pairwise(ends)]:
        raise ValueError("its tensors are not one after the other")
    return infos


def header_of(infos: Mapping[str, TensorInfo], metadata: Mapping[str, str], size: int = 0) -> bytes:
    """What precedes the data section of a file, at least ``size`` bytes."""
    header: dict[str, object] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name, info in infos.items():
        offsets = [end, end := end + info.nbytes]
        header[name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": offsets}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(size - 8)
    return len(text).to_bytes(8, "little") + text


def library_order(infos: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The order of the safetensors library: widest dtype first, then by name."""
    return dict(sorted(infos.items(), key=lambda item: (-bits_of(item[1].dtype), item[0])))


def new_flat(
    path: Path | str, layout: Layout, metadata: Mapping[str, str], dtype: DTypeLike = np.float32
) -> AbstractContextManager[NewTensors]:
    """As :func:`new_tensors`, for the flat vector [P'] of a layout: fill ``new.flat`` piece by piece."""
    infos = {name: TensorInfo(code_of(np.dtype(dtype)), shape) for name, shape in layout.by_name.items()}
    return new_tensors(path, infos, metadata)


def _read_header(path: Path) -> tuple[dict[str, dict], dict[str, str]]:
    try:
        with open_plain(path) as file:  # first, as safetensors reports unreadable files as missing
            if (length := int.from_bytes(file.read(8), "little")) > LARGEST_HEADER and path.stat().st_size > length:
                raise TallmasksError(
                    f"{path}: the header has {length:,} bytes; expected at most {LARGEST_HEADER:,}, enough for 100,000"
                    " tensors. Save the model in several files"
                )
            with safe_open(path, framework="np"):
                pass
            header = json.loads(file.read(length))
    except FileNotFoundError:
        raise TallmasksError(f"{path} does not exist; expected a safetensors file") from None
    except PermissionError as error:
        raise TallmasksError(f"{path} cannot be read ({error.strerror}); change its permissions") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise TallmasksError(f"{path} is not a complete safetensors file: {error}. Copy or create it again") from error
    metadata = header.pop(METADATA, None)
    return header, metadata or {}


def is_name(text: str) -> bool:
    """Whether a name from an untrusted file can be shown as it is."""
    return len(text) <= LONGEST_NAME and one_line(text) == text
