"""The tensors of a file of torch.save: names, dtypes, shapes and where their values lie.  Nothing in it is executed.

The pickle inside is read without torch: whatever it names is replaced by the few functions here, which call nothing.
But a few bytes of pickle can take any memory and time.  So `tensors_in` starts this module as a program, with limits;
it imports nothing but Python's own modules.
"""

from __future__ import annotations

import json
import pickle
import re
import resource
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

MEMORY, SECONDS = 1 << 30, 10
"""Bytes of memory and seconds of processor time for one file; 100,000 tensors take 170 MB and 2 seconds."""
_LONGEST = 1 << 26
_ZIP, _MAGIC = b"PK\x03\x04", 0x1950A86A20F9469CFC6C
"""How an archive begins, and the first pickle of the format before torch 1.6: five pickles, then the values."""
_STORAGES = {
    "DoubleStorage": ("float64", 8), "FloatStorage": ("float32", 4), "HalfStorage": ("float16", 2),
    "BFloat16Storage": ("bfloat16", 2), "LongStorage": ("int64", 8), "IntStorage": ("int32", 4),
    "ShortStorage": ("int16", 2), "CharStorage": ("int8", 1), "ByteStorage": ("uint8", 1), "BoolStorage": ("bool", 1),
    "ComplexFloatStorage": ("complex64", 8), "UntypedStorage": ("uint8", 1),
}  # fmt: skip
"""torch's name of the dtype, and bytes of a value."""
_AROUND = ("state_dict", "model", "model_state_dict", "module")
"""Where Lightning, torch's own examples and DeepSpeed put a model's state dict."""
_DTYPE = re.compile(r"(bfloat|float|u?int|complex)\d\w*|bool")


class StoredTensor(NamedTuple):
    """``offset`` and ``strides`` count values from ``start``, where the ``size`` bytes of its storage lie in the file;
    ``dtype`` is torch's name."""

    name: str
    dtype: str
    offset: int
    shape: list[int]
    strides: list[int]
    start: int
    size: int


def tensors_in(path: Path) -> list[StoredTensor]:
    """The tensors of a file, or of the only state dict in it.  Anything may be wrong with their numbers.

    Raises ValueError, which says what is wrong with the file.
    """
    program = [sys.executable, "-I", "-S", __file__, str(path), str(MEMORY), str(SECONDS)]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = f"reading it takes more than {SECONDS} seconds or {MEMORY} bytes of memory"
    if isinstance(answer, str):
        raise ValueError(answer)
    return [StoredTensor(*tensor) for tensor in answer]


class _Storage(NamedTuple):
    dtype: str
    width: int
    key: str
    length: int


class _Tensor(NamedTuple):
    storage: _Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Other:
    """In the place of whatever else a file names: it takes anything and does nothing."""

    def __init__(self, *_: object) -> None:
        pass


def _tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *more: Any) -> _Tensor:
    """A tensor of torch._utils's `_rebuild_tensor`, `_v2` (a flag, hooks, signs) or `_v3` (dtype before the signs)."""
    dtype, *signs = more[2:] if more[2:] and isinstance(more[2], str) else (storage.dtype, *more[2:])
    if any(signs):
        raise ValueError("a tensor is the conjugate or the negative of what is stored")
    return _Tensor(storage, dtype, offset, shape, strides)


_CALLED = {
    **dict.fromkeys(("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"), _tensor),
    **dict.fromkeys(("_rebuild_parameter", "_rebuild_parameter_with_state"), lambda tensor, *_: tensor),
    "OrderedDict": OrderedDict,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="utf-8")
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and _DTYPE.fullmatch(name):
            return name
        return _STORAGES.get(name) or _CALLED.get(name, _Other)

    def persistent_load(self, named: Any) -> _Storage:
        _, kind, key, _, count, *view = named
        if any(view):
            raise ValueError("a storage is a part of another one, as torch saved it before 0.4")
        dtype, width = kind if isinstance(kind, tuple) else ("quantised", 1)
        return self.storages.setdefault(key, _Storage(dtype, width, key, count))


Places = dict[str, tuple[int, int]]
"""Where the bytes of each storage begin, and how many there are."""


def _zipped(file: BinaryIO) -> tuple[Any, Places]:
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
        for name, entry in entries.items():
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                raise ValueError(f"its part {name!a:.100} is packed, and torch.save packs nothing")
        if "byteorder" in entries and archive.read(entries["byteorder"]) != b"little":
            raise ValueError("it is of a machine with another order of bytes")
        saved = _Unpickler(archive.open(entries["data.pkl"])).load()
    places = {}
    for name, entry in entries.items():
        file.seek(entry.header_offset + 26)
        begin = entry.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
        places[name.removeprefix("data/")] = begin, entry.file_size
    return saved, places


def _before_1_6(file: BinaryIO) -> tuple[Any, Places]:
    magic, _, machine = (_Unpickler(file).load() for _ in range(3))
    if magic != _MAGIC or not machine["little_endian"]:
        raise ValueError("it is no file of torch.save, or of a machine with another order of bytes")
    pickled = _Unpickler(file)
    saved, places = pickled.load(), {}
    for key in _Unpickler(file).load():
        size = struct.unpack("<q", file.read(8))[0] * pickled.storages[key].width
        places[key] = file.tell(), size
        file.seek(size, 1)
    return saved, places


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(tensor, _Tensor) for tensor in value.values())


def _state_dict(saved: Any) -> dict:
    """What was saved, or the only state dict in it, where trainers put it: what lies beside it has no tensors."""
    if not isinstance(saved, dict):
        raise ValueError("it is no dict")
    inner = [name for name, value in saved.items() if _is_state_dict(value)]
    if any(isinstance(value, _Tensor) for value in saved.values()) or not inner:
        return saved
    if len(inner) > 1 or inner[0] not in _AROUND:
        raise ValueError(f"it has {', '.join(map(ascii, inner))[:100]}; expected one of {', '.join(_AROUND)} alone")
    return saved[inner[0]]


def _tensors(state: Any, places: Places) -> list[StoredTensor]:
    state = _state_dict(state)
    tensors = []
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise ValueError(f"{name!a:.100} is no name, or not of a plain tensor")
        storage, (start, size) = tensor.storage, places[tensor.storage.key]
        if storage.length * storage.width > size:
            raise ValueError(f"tensor {name!a:.100} has {size} bytes, and {storage.length * storage.width} were saved")
        shape, strides = [*tensor.shape], [*tensor.strides]
        tensors.append(StoredTensor(name, tensor.dtype, tensor.offset, shape, strides, start, size))
    return tensors


def _main(path: str, memory: str, seconds: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    try:
        with Path(path).open("rb") as file:
            zipped = file.peek(4).startswith(_ZIP)
            answer = json.dumps(_tensors(*(_zipped if zipped else _before_1_6)(file)))
    except Exception as error:  # anything, on a file that was cut or changed
        answer = json.dumps(" ".join(str(error).split())[:200] or type(error).__name__)
    if len(answer) <= _LONGEST:
        print(answer)


if __name__ == "__main__":
    _main(*sys.argv[1:])
