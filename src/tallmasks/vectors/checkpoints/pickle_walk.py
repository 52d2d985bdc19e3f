"""What is unpickled of a file of torch.save, looked at before: only what rebuilds tensors is let through.

torch runs no code of a file.  But a file of 432 bytes can keep it busy for ever (a key of tuples within tuples: its
hash takes 2^n steps), and one of 35 bytes fill the memory (`bytearray(6 << 30)`).  So the opcodes are walked first.
The walk keeps tuples, lists, words and numbers, and one stand-in for all the rest.
"""

from __future__ import annotations

import mmap
import pickletools
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from tallmasks.store.plain_files import open_plain

_ZIP = b"PK\x03\x04"
"""How torch tells an archive from the format before torch 1.6, which is five pickles and the values."""
_PICKLES = 5
_MOST_IN_TUPLE = 1 << 16
_MOST_IN_CALL = 1000
"""Values of tuples within tuples, each counted as often as it is reached; far more than any tensor has axes."""
_REBUILDS = {
    *(f"torch._utils _rebuild_{kind}" for kind in (
        "tensor", "tensor_v2", "tensor_v3", "parameter", "parameter_with_state", "sparse_tensor", "qtensor",
        "meta_tensor_no_storage", "nested_tensor",
    )),
    "torch Size", "torch device", "torch.serialization _get_layout", "__builtin__ complex",
}  # fmt: skip
"""What may be called: nothing of it calls its arguments, or takes them for a size of memory that it fills."""
_DICT = object()
_THING = object()
"""Whatever else there is: a set, what a call gave."""
_CONSTANTS = {
    "NONE": None, "NEWTRUE": True, "NEWFALSE": False, "BININT": 0, "BININT1": 0, "BININT2": 0, "LONG1": 0,
    "BINFLOAT": 0.0, "BINUNICODE": "", "SHORT_BINSTRING": "", "EMPTY_DICT": _DICT, "EMPTY_SET": _THING,
}  # fmt: skip
_SMALL_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_LARGEST_KEY = 1 << 60
"""Larger numbers may have one hash for all of them; then each key is compared with all others."""


@dataclass(frozen=True, eq=False)
class _Global:
    name: str


@dataclass(frozen=True, eq=False)
class _Storage:
    size: int


@dataclass(frozen=True, eq=False)
class _Tuple:
    items: list[Any]
    weight: int


def check_pickles(path: Path) -> None:
    """Refuse a file whose pickles do more than rebuild tensors.

    Raises UnpicklingError where they call something else, or have keys that are no words and no numbers; and
    ValueError, IndexError, KeyError, RuntimeError or OSError where the file is damaged.
    """
    with open_plain(path) as file:
        if file.read(len(_ZIP)) == _ZIP:
            from torch._C import PyTorchFileReader

            _walk(BytesIO(PyTorchFileReader(str(path)).get_record("data.pkl")), path.stat().st_size)
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for _ in range(_PICKLES):
                _walk(content, len(content))


def _walk(pickled: Any, file_size: int) -> None:
    """Walk one pickle of a file to its end; no storage may have more values than the file has bytes."""
    stack: list[Any] = []
    below: list[list[Any]] = []
    memo: dict[int, Any] = {}
    argument: Any

    def marked() -> list[Any]:
        nonlocal stack
        items, stack = stack, below.pop()
        return items

    for opcode, argument, _ in pickletools.genops(pickled):
        name = opcode.name
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name] if argument is None else argument)
        elif name == "GLOBAL":
            stack.append(_Global(argument))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "MARK":
            below.append(stack)
            stack = []
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "EMPTY_TUPLE":
            stack.append(_tuple([]))
        elif name in _SMALL_TUPLES:
            stack[-_SMALL_TUPLES[name] :] = [_tuple(stack[-_SMALL_TUPLES[name] :])]
        elif name == "TUPLE":
            items = marked()  # first, as it changes the stack
            stack.append(_tuple(items))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else marked()
            if not isinstance(stack[-1], list):
                raise UnpicklingError("values are appended to what is no list")
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else marked()
            _check_keys(items[::2])
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop(), file_size))
        elif name == "REDUCE":
            arguments = stack.pop()
            _check_call(stack.pop(), arguments)
            stack.append(_THING)
        elif name == "BUILD":
            if (state := stack.pop()) not in (_DICT, _THING):
                _check_small(state)
        elif name not in ("PROTO", "STOP"):
            raise UnpicklingError(f"the opcode {name} is in it")


def _tuple(items: list[Any]) -> _Tuple:
    weight = 1 + sum(item.weight if isinstance(item, _Tuple) else 1 for item in items)
    if weight > _MOST_IN_TUPLE:
        raise UnpicklingError(f"a tuple stands for {weight} values")
    return _Tuple(items, weight)


def _check_keys(keys: list[Any]) -> None:
    if not all(key is None or isinstance(key, str | int | float) for key in keys):
        raise UnpicklingError("a key is no word and no number")
    if any(isinstance(key, int) and abs(key) >= _LARGEST_KEY for key in keys):
        raise UnpicklingError("a key is a number of more than 60 bits")


def _check_small(arguments: Any) -> None:
    if not isinstance(arguments, _Tuple) or arguments.weight > _MOST_IN_CALL:
        raise UnpicklingError("a call has arguments that no tensor needs")


def _check_call(called: Any, arguments: Any) -> None:
    name = called.name if isinstance(called, _Global) else "something"
    _check_small(arguments)
    if name == "collections OrderedDict":  # Python 2 gave it a list of pairs, lists themselves
        pairs = arguments.items[0] if arguments.items else []
        if not isinstance(pairs, list) or not all(isinstance(pair, list) for pair in pairs):
            raise UnpicklingError("an OrderedDict is made of something else than a list of pairs")
        _check_keys([pair[0] for pair in pairs])
    elif name == "__builtin__ set" and len(arguments.items) == 1 and isinstance(arguments.items[0], list):
        _check_keys(arguments.items[0])
    elif name == "collections Counter":  # a scheduler's milestones
        if not all(item is _DICT for item in arguments.items):
            raise UnpicklingError("a Counter is made of something else than a dict")
    elif name == "_codecs encode":  # bytes; punycode would take for ever
        if arguments.items[1:] != ["latin1"]:
            raise UnpicklingError("a text is to be encoded in another way than bytes are saved")
    elif name not in _REBUILDS:
        raise UnpicklingError(f"it calls {name}")
    elif name.startswith("torch._utils _rebuild_tensor") and isinstance(arguments.items[0], _Storage):
        _check_view(arguments.items[0], *arguments.items[1:4])


def _check_view(storage: _Storage, offset: int, shape: _Tuple, strides: _Tuple) -> None:
    """Refuse a tensor that is larger than its storage: torch would enlarge the storage."""
    axes = list(zip(shape.items, strides.items, strict=True))
    last = offset + sum((size - 1) * stride for size, stride in axes)
    if all(size for size, _ in axes) and last >= storage.size:
        raise ValueError(f"a tensor reaches to value {last} of a storage of {storage.size}")


def _storage(named: Any, file_size: int) -> _Storage:
    """What ("storage", its type, its key, its device, how many values, ...) stands for."""
    _check_small(named)
    size = named.items[4]
    if not 0 <= size <= file_size:
        raise ValueError(f"a storage of {size} values in a file of {file_size} bytes")
    return _Storage(size)
