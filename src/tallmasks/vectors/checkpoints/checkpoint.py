"""The Checkpoint class: tensors by name, read in pieces, whatever the file format."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, name_some
from tallmasks.io.dtypes import DTYPES, FLOATS, ROUNDOFF, nbytes_of
from tallmasks.io.plain_files import open_plain, read_plain_json
from tallmasks.io.tensor_files import Layout, TensorInfo, bytes_in_order
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.buffers import Buffer, buffers_among
from tallmasks.vectors.checkpoints.float_bytes import widened

COMPARED = 1 << 20  # values compared or hashed at once


@dataclass(frozen=True)
class PlannedFile:
    """A weight file of a new checkpoint.

    Attributes:
        infos: its tensors by name in the file, in the order of their bytes.
        names: the checkpoint's name of each tensor, by name in the file.
        header: what precedes the data, if it is given.
    """

    name: str
    infos: Mapping[str, TensorInfo]
    names: Mapping[str, str]
    metadata: Mapping[str, str]
    header: bytes | None = None

    @property
    def size(self) -> int:
        return bytes_in_order(self.infos, self.metadata, self.header)


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """An open checkpoint. Values are read on demand. Methods are thread-safe and accept aliases as tensor names.

    Attributes:
        tensors: all tensors, sorted by name; tied tensors appear once, under their first name.
        aliases: the other names of tied tensors, mapped to the first.
        files: the files that determine the values, by name relative to the folder.
        companions: small files to copy along (configuration, tokenizer), by name, without README.md.
        left_out: the folder's other files, with a reason where one is needed.
        origin: ``{"repository": ..., "revision": <full commit>}`` or ``{"path": ...}``.
        file_of: the weight file of every tensor, in the order of their bytes.
        metadata: of each safetensors file, by file name.
        indexes: the index files of sharded models, by name.
        file_names: names in the files, for tensors that have another name here.
        originals: its weight files as `PlannedFile`s with headers, if they can be written byte for byte.
        arrays: each tensor in its shape, memory-mapped and read-only; raw bytes for dtypes not in `DTYPES`.
    """

    title: str
    tensors: Mapping[str, TensorInfo]
    aliases: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)
    file_of: Mapping[str, str] = field(default_factory=dict)
    companions: Mapping[str, Path] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    is_folder: bool = False
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    indexes: Mapping[str, Path] = field(default_factory=dict)
    file_names: Mapping[str, str] = field(default_factory=dict)
    originals: Sequence[PlannedFile] = ()
    arrays: Mapping[str, NDArray] = field(default_factory=dict)

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        return buffers_among(self.shapes)

    @cached_property
    def averages(self) -> list[str]:
        """Float buffers that can be averaged over models."""
        return [name for name, kind in self.buffers.items() if kind is Buffer.AVERAGE and self.tensors[name].is_float]

    @cached_property
    def layout(self) -> Layout:
        """The weights: all float tensors except buffers, sorted by name, tied tensors once."""
        names = tuple(name for name, info in self.tensors.items() if info.is_float and name not in self.buffers)
        return Layout(names, tuple(self.tensors[name].shape for name in names))

    @cached_property
    def configs(self) -> dict[str, dict[str, Any]]:
        """The content of every readable config.json, by path relative to the folder."""
        configs = {}
        for name, path in self.companions.items():
            if name.rpartition("/")[2] == "config.json":
                with suppress(OSError, ValueError):  # an error is reported when the model is loaded
                    content = read_plain_json(path)
                    configs[name] = content if isinstance(content, dict) else {}
        return configs

    @property
    def config(self) -> dict[str, Any]:
        """The content of the folder's config.json; empty if it is missing or unreadable."""
        return self.configs.get("config.json", {})

    @cached_property
    def names(self) -> Set[str]:
        """All names, aliases too, in the order of ``tensors`` and then of ``aliases``."""
        return dict.fromkeys((*self.tensors, *self.aliases)).keys()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: info.shape for name, info in self.tensors.items()}

    def without(self, names: Collection[str]) -> Checkpoint:
        """The checkpoint without some tensors."""
        if not names:
            return self
        tensors = {name: info for name, info in self.tensors.items() if name not in names}
        aliases = {one: name for one, name in self.aliases.items() if one not in names and name not in names}
        return replace(self, tensors=tensors, aliases=aliases)

    def file_name(self, name: str) -> str:
        return self.file_names.get(name, name)

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.files.values())

    def raw_bytes(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The stored bytes of values start..stop of a flattened tensor, uint8; read-only or a copy. Raises
        TallmasksError if there is no such tensor."""
        info, array = self.info(name), self.arrays[self.aliases.get(name, name)]
        if info.dtype not in DTYPES:
            return array[nbytes_of(info.dtype, start) : nbytes_of(info.dtype, stop)]
        run = array.reshape(-1)[start:stop] if array.flags.c_contiguous else array.flat[start:stop]
        return run.view(np.uint8)

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Values start..stop of a flattened float tensor, as float32 [stop - start]; F64 is rounded. The array is
        read-only or a copy. Raises TallmasksError if there is no such float tensor."""
        return widened(self.raw_bytes(name, start, stop), self._float(name))

    def float32(self, name: str) -> NDArray[np.float32]:
        """A whole float tensor as float32, in its shape; see `piece`."""
        info = self.info(name)
        return self.piece(name, 0, info.size).reshape(info.shape)

    def flat(self) -> NDArray[np.float32]:
        """All weights as one new float32 vector, in the order of `layout`."""
        return self.layout.join({name: self.float32(name) for name in self.layout.names})

    def difference(self, base: Checkpoint, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """theta_t - theta_0 as float32 [stop - start], for values start..stop of a flattened float tensor. Raises
        TallmasksError if one of the two has no such float tensor."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.piece(name, start, stop) - base.piece(name, start, stop)

    def roundoff(self, name: str) -> float:
        """The largest relative rounding error of a float tensor's stored values."""
        return ROUNDOFF[self._float(name)]

    def same(self, base: Checkpoint, name: str, other: str | None = None) -> bool:
        """Whether a tensor has the dtype, shape and bytes of ``base``'s tensor ``other`` (default: the same name)."""
        info, other = self.info(name), other or name
        if info != base.info(other):
            return False
        pairs = zip(self.raw_pieces(name), base.raw_pieces(other), strict=True)
        return all(np.array_equal(*pair) for pair in pairs)

    def raw_pieces(self, name: str) -> Iterator[NDArray[np.uint8]]:
        size = self.info(name).size
        return (self.raw_bytes(name, start, min(start + COMPARED, size)) for start in range(0, size, COMPARED))

    def digest(self, name: str) -> str:
        """The sha256 of a tensor's stored bytes."""
        digest = hashlib.sha256()
        for piece in self.raw_pieces(name):
            digest.update(np.ascontiguousarray(piece).data)
        return digest.hexdigest()

    def sha256s(self) -> dict[str, str]:
        """The sha256 of every file in ``files``, by name."""
        return dict(zip(self.files, parallel(sha256_of, self.files.values()), strict=True))

    def info(self, name: str) -> TensorInfo:
        """Dtype and shape of a tensor. Raises TallmasksError if there is no such tensor."""
        try:
            return self.tensors[self.aliases.get(name, name)]
        except KeyError:
            raise TallmasksError(f"{self.title} has no tensor {name}; it has {name_some(self.tensors)}") from None

    def _float(self, name: str) -> str:
        info = self.info(name)
        if not info.is_float:
            raise TallmasksError(f"{self.title}: tensor {name} is {info.dtype}; expected {', '.join(FLOATS)}")
        return info.dtype


def sha256_of(path: Path) -> str:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
