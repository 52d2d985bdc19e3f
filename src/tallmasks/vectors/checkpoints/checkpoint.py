"""What a checkpoint is, whoever saved it and however: tensors by name, read in pieces."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.io.dtypes import DTYPES, FLOATS, ROUNDOFF
from tallmasks.io.plain_files import open_plain, read_plain_json
from tallmasks.io.tensor_files import Layout, name_some
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.buffers import Buffer, buffers_among
from tallmasks.vectors.checkpoints.float_bytes import widened

COMPARED = 1 << 20
"""How many values are compared, or digested, at once."""


class TensorInfo(NamedTuple):
    """What a checkpoint says of a tensor."""

    dtype: str
    """As safetensors names it: ``F32``, ``BF16``, ``I64``, ..."""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """An open checkpoint.  Values stay on the disk until they are asked for; any thread may call any method.

    Methods take an alias for a tensor's name.

    Attributes:
        title: what the user called it.
        tensors: every tensor, sorted by name; of several names of one tensor the first.
        aliases: the other names, each with the one that counts.
        files: the files that decide the values, by their names in the folder.
        companions: the small other files of a folder (configuration, tokenizer), by name; README.md is none.
        left_out: the folder's other files, each with a reason where it needs one.
        origin: where it is from: ``{"repository": ..., "revision": <full commit>}`` or ``{"path": ...}``.
        file_of: the weight file of every tensor, by tensor, in the order of their bytes.
        is_folder: whether it is a folder, or one file.
        metadata: of a safetensors file, by its name in the folder.
        indexes: the indexes of sharded models, by name; their texts are kept when a model is written like this one.
        file_names: what the files call tensors that have another name here.
        arrays: each tensor in its shape, memory-mapped and read-only; the bytes of dtypes that are not in `DTYPES`.
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
    arrays: Mapping[str, NDArray] = field(default_factory=dict)

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """The tensors that are no weights by their names and shapes, tied ones once."""
        return buffers_among(self.shapes)

    @cached_property
    def averages(self) -> list[str]:
        """The float buffers whose mean over models is one again."""
        return [name for name, kind in self.buffers.items() if kind is Buffer.AVERAGE and self.tensors[name].is_float]

    @cached_property
    def layout(self) -> Layout:
        """The weights: the float tensors that are no buffers, names sorted, tied ones once."""
        names = tuple(name for name, info in self.tensors.items() if info.is_float and name not in self.buffers)
        return Layout(names, tuple(self.tensors[name].shape for name in names))

    @cached_property
    def configs(self) -> dict[str, dict[str, Any]]:
        """The content of every config.json that can be read, by its name: of the folder, and of folders of parts."""
        configs = {}
        for name, path in self.companions.items():
            if name.rpartition("/")[2] == "config.json":
                with suppress(OSError, ValueError):  # whoever loads the model will report it
                    content = read_plain_json(path)
                    configs[name] = content if isinstance(content, dict) else {}
        return configs

    @property
    def config(self) -> dict[str, Any]:
        """The content of the folder's config.json; empty where there is none that can be read."""
        return self.configs.get("config.json", {})

    @property
    def names(self) -> list[str]:
        return [*self.tensors, *self.aliases]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: info.shape for name, info in self.tensors.items()}

    def file_name(self, name: str) -> str:
        """What the files call a tensor, in the folder of its part."""
        return self.file_names.get(name, name)

    @property
    def nbytes(self) -> int:
        """Bytes of the weight files."""
        return sum(path.stat().st_size for path in self.files.values())

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of values start..stop of a flattened tensor, as they are in the file; read-only or fresh.

        Raises TallmasksError where there is no such tensor.
        """
        info, array = self.info(name), self.arrays[self.aliases.get(name, name)]
        if info.dtype not in DTYPES:
            bits = array.size * 8 // max(info.size, 1)
            return array[start * bits // 8 : stop * bits // 8]
        run = array.reshape(-1)[start:stop] if array.flags.c_contiguous else array.flat[start:stop]
        return run.view(np.uint8)

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Values start..stop of a flattened float tensor, as float32 [stop - start]; F64 is rounded.

        The array is read-only, or the caller's.  Raises TallmasksError where there is no such tensor of floats.
        """
        return widened(self.stored(name, start, stop), self._float(name))

    def float32(self, name: str) -> NDArray[np.float32]:
        """All of a float tensor in its shape; see `piece`."""
        info = self.info(name)
        return self.piece(name, 0, info.size).reshape(info.shape)

    def flat(self) -> NDArray[np.float32]:
        """The weights one after the other, as `layout` has them: a new array."""
        return self.layout.join({name: self.float32(name) for name in self.layout.names})

    def difference(self, base: Checkpoint, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """theta_t - theta_0 in float32 [stop - start], for values start..stop of a flattened float tensor.

        Raises TallmasksError where one of the two has no such tensor of floats.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self.piece(name, start, stop) - base.piece(name, start, stop)

    def roundoff(self, name: str) -> float:
        """The largest relative error with which the values of a float tensor were rounded when they were saved."""
        return ROUNDOFF[self._float(name)]

    def same(self, base: Checkpoint, name: str, other: str | None = None) -> bool:
        """Whether a tensor has the dtype, the shape and all the bytes of one in ``base``, by default of its name."""
        info, other = self.info(name), other or name
        if info != base.info(other):
            return False
        pairs = zip(self.raw_pieces(name), base.raw_pieces(other), strict=True)
        return all(np.array_equal(*pair) for pair in pairs)

    def raw_pieces(self, name: str) -> Iterator[NDArray[np.uint8]]:
        """The bytes of a tensor as they are stored, piece by piece."""
        size = self.info(name).size
        return (self.stored(name, start, min(start + COMPARED, size)) for start in range(0, size, COMPARED))

    def digest(self, name: str) -> str:
        """The sha256 of a tensor's bytes as they are stored."""
        digest = hashlib.sha256()
        for piece in self.raw_pieces(name):
            digest.update(np.ascontiguousarray(piece).data)
        return digest.hexdigest()

    def sha256s(self) -> dict[str, str]:
        """The sha256 of every file that decides the values, by name."""
        return dict(zip(self.files, parallel(sha256_of, self.files.values()), strict=True))

    def info(self, name: str) -> TensorInfo:
        """Dtype and shape of a tensor.  Raises TallmasksError where there is none of the name."""
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
    """The sha256 of a plain file, read in pieces."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
