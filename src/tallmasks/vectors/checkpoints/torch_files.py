"""Tensors in torch.save files, memory-mapped where possible. torch is not needed, and code in files is never run."""

from __future__ import annotations

import bisect
import io
import math
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.dtypes import DTYPES, code_of
from tallmasks.io.plain_files import open_plain
from tallmasks.io.tensor_files import LONGEST_NAME
from tallmasks.vectors.checkpoints.pickled_tensors import (
    LONGEST,
    Items,
    Named,
    Storage,
    StoredTensor,
    Unusable,
    read_pickle,
)

# Keys of the state dict in checkpoints of Lightning, torch's examples and DeepSpeed.
_AROUND = ("state_dict", "model", "model_state_dict", "module")
_ZIP, _LOCAL_HEADER = b"PK\x03\x04", struct.Struct("<4s22xHH")
_OLD_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of files from before torch 1.6
_Bytes = NDArray[np.uint8]
_Records = Callable[[Storage], _Bytes]


def tensors_in(path: Path) -> dict[str, tuple[str, NDArray]]:
    """The safetensors dtype code and the read-only array of each tensor in a file, or in the only state dict in it.
    Tied tensors share one array object; dtypes that NumPy lacks are unsigned integers. Values that are not aligned are
    read into memory. Raises Unusable with the reason, and any type if the file is damaged."""
    with open_plain(path) as file:
        mapped = np.asarray(np.memmap(file, np.uint8, mode="r"))
        if bytes(mapped[:4]) != _ZIP:
            return _tensors(*_before_1_6(mapped))
        with zipfile.ZipFile(file) as archive:
            return _tensors(*_from_archive(archive, mapped))


def _from_archive(archive: zipfile.ZipFile, mapped: _Bytes) -> tuple[Any, _Records]:
    entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
    if len(entries) < len(archive.infolist()):
        raise Unusable("two of its records have the same name")
    for name, entry in entries.items():
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise Unusable(f"its record {name:.100} is compressed or encrypted, which torch.save never does")
    if "byteorder" in entries and archive.read(entries["byteorder"]) != b"little":
        raise Unusable("it was saved on a big-endian machine")
    if entries["data.pkl"].file_size > LONGEST:
        raise Unusable(f"the description of its tensors is longer than {LONGEST:,} bytes")
    starts = sorted([*(entry.header_offset for entry in entries.values()), archive.start_dir])

    def record(storage: Storage) -> _Bytes:
        entry = entries[f"data/{storage.key}"]
        if entry.file_size != storage.nbytes:
            raise Unusable(f"its record data/{storage.key} has {entry.file_size} bytes; expected {storage.nbytes}")
        magic, *lengths = _LOCAL_HEADER.unpack_from(mapped.data, entry.header_offset)
        start = entry.header_offset + _LOCAL_HEADER.size + sum(lengths)
        end = start + entry.file_size
        if magic != _ZIP or end > starts[bisect.bisect(starts, entry.header_offset)]:
            raise Unusable(f"its record data/{storage.key} is not where the archive's directory says")
        return mapped[start:end]

    return read_pickle(io.BytesIO(archive.read(entries["data.pkl"]))).value, record


def _before_1_6(mapped: _Bytes) -> tuple[Any, _Records]:
    """Five pickles, then every storage: the number of its values, and their bytes."""
    file = io.BytesIO(mapped[:LONGEST].tobytes())
    if read_pickle(file).value != _OLD_MAGIC:
        raise Unusable("it is not in torch.save's format")
    _, _, saved, keys = (read_pickle(file) for _ in range(4))
    places, end = {}, file.tell()
    for key in keys.value:
        if not isinstance(key, str):
            raise Unusable(f"the key of a storage is {_in_words(key)}")
        storage = saved.storages[key]
        start, (count,) = end + 8, struct.unpack_from("<q", mapped.data, end)
        end = start + storage.nbytes
        if count != storage.length:
            raise Unusable(f"a storage has {count} values; expected {storage.length}")
        places[storage.key] = slice(start, end)
    return saved.value, lambda storage: mapped[places[storage.key]]


def _tensors(saved: Any, record: _Records) -> dict[str, tuple[str, NDArray]]:
    state = _state_dict(saved)
    records: dict[Storage, _Bytes] = {}
    for name, stored in state.items():
        if (storage := stored.storage) not in records:
            records[storage] = record(storage)
            if (found := len(records[storage])) < storage.nbytes:
                raise Unusable(f"{found} bytes are stored for tensor {name!a:.100}; expected {storage.nbytes}")
    arrays: dict[StoredTensor, NDArray] = {}
    for name, stored in state.items():
        if stored not in arrays:
            kind = _numpy_dtype(name, stored)
            if math.prod(stored.shape) * kind.itemsize > stored.storage.nbytes:  # repeated, with stride 0
                raise Unusable(f"tensor {name!a:.100} of shape {stored.shape!s:.100} is larger than its stored data")
            arrays[stored] = _array(name, stored, kind, records[stored.storage])
    return {name: (code_of(stored.dtype), arrays[stored]) for name, stored in state.items()}


def _numpy_dtype(name: str, stored: StoredTensor) -> np.dtype:
    if (code := code_of(stored.dtype)) not in DTYPES:
        raise Unusable(f"tensor {name!a:.100} has dtype {code!a:.100}; expected one of {', '.join(DTYPES)}")
    return DTYPES[code].numpy


def _array(name: str, stored: StoredTensor, kind: np.dtype, record: _Bytes) -> NDArray:
    offset, strides = stored.offset * kind.itemsize, [step * kind.itemsize for step in stored.strides]
    try:
        array = np.ndarray(stored.shape, kind, record if math.prod(stored.shape) else None, offset, strides)
    except (ValueError, TypeError, OverflowError) as error:  # NumPy checks the bounds
        what = f"tensor {name!a:.100} of shape {stored.shape!s:.100} and strides {stored.strides!s:.100}"
        raise Unusable(f"{what} does not fit into its stored data ({error})") from None
    array = np.require(array, kind, requirements="A")
    array.flags.writeable = False
    return array


def _state_dict(saved: Any) -> dict[str, StoredTensor]:
    """The saved dict, or the only state dict in it, under a known key."""
    if not isinstance(saved, Items):
        raise Unusable(f"it is {_in_words(saved)}, not a dict")
    items = saved.items
    if not any(isinstance(value, StoredTensor) for _, value in items):
        # each list once: many items can share one
        inner = {id(value.items): (key, value.items) for key, value in items if isinstance(value, Items)}
        full = [(key, of_key) for key, of_key in inner.values() if of_key and all(map(_is_tensor, of_key))]
        if full and (len(full) > 1 or full[0][0] not in _AROUND):
            found = ", ".join(f"{key!a:.60}" if isinstance(key, str) else _in_words(key) for key, _ in full[:5])
            raise Unusable(f"it has state dicts under {found}; expected only one, under {', '.join(_AROUND)}")
        items = full[0][1] if full else items
    state = {}
    for name, value in items:
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise Unusable(f"a key is {_in_words(name)}; expected names of at most {LONGEST_NAME} characters")
        if not isinstance(value, StoredTensor):
            raise Unusable(f"{name!a:.100} is {_in_words(value)}; expected a dense, unquantised CPU tensor")
        state[name] = value
    return state


def _is_tensor(item: Any) -> bool:
    return isinstance(item[1], StoredTensor)


def _in_words(value: Any) -> str:
    """``value`` can have any size or depth, so its repr is not used."""
    if isinstance(value, Named):
        return f"an object of {value.name!a:.100}"
    return "a dict" if isinstance(value, Items) else f"a value of type {type(value).__name__}"
