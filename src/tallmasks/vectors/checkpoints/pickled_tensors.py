"""The tensors that a pickle of torch.save describes, without their values.

Python's and torch's unpicklers call functions and hash keys, so a kilobyte can take all memory or never end. Here
`pickletools` splits the pickle into operations, nothing is imported, called or hashed, and a dict is a list of its
items, so time and memory are proportional to the length of the pickle.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

LONGEST = 1 << 24  # bytes of a pickle, enough for 90,000 tensors
_MOST_AXES = 64
# Bytes per value and torch's dtype, by the name of the storage's class.
_STORAGES = {
    "DoubleStorage": (8, "float64"), "FloatStorage": (4, "float32"), "HalfStorage": (2, "float16"),
    "BFloat16Storage": (2, "bfloat16"), "LongStorage": (8, "int64"), "IntStorage": (4, "int32"),
    "ShortStorage": (2, "int16"), "CharStorage": (1, "int8"), "ByteStorage": (1, "uint8"), "BoolStorage": (1, "bool"),
    "ComplexDoubleStorage": (16, "complex128"), "ComplexFloatStorage": (8, "complex64"),
    "UntypedStorage": (1, "uint8"), "QInt8Storage": (1, "qint8"), "QUInt8Storage": (1, "quint8"),
    "QInt32Storage": (4, "qint32"), "QUInt4x2Storage": (1, "quint4x2"), "QUInt2x4Storage": (1, "quint2x4"),
}  # fmt: skip
# What state dicts and training checkpoints name, besides torch's own classes and functions.
_NAMED = {
    "collections.OrderedDict", "collections.Counter", "_codecs.encode",
    *(f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "bytearray", "complex")),
}  # fmt: skip
_PUSHED = {"BININT", "BININT1", "BININT2", "BINUNICODE", "BINFLOAT", "LONG1"}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


class Unusable(ValueError):
    """The file is not a state dict; the message is the reason."""


class Storage(NamedTuple):
    key: str
    dtype: str
    width: int  # bytes of a value
    length: int  # in values

    @property
    def nbytes(self) -> int:
        return self.width * self.length


class StoredTensor(NamedTuple):
    """``offset`` and ``strides`` count values; ``dtype`` is torch's name."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Named:
    """A class or function, or an object made with it: only its name is known."""

    name: str


@dataclass(slots=True)
class Items:
    """A dict. The keys are not hashed and may repeat."""

    items: list[Any] = field(default_factory=list)


@dataclass
class Pickled:
    value: Any
    storages: dict[str, Storage]


def read_pickle(file: BinaryIO) -> Pickled:
    """Read one pickle. Raises Unusable if it names what no state dict needs, and any type if it is damaged."""
    stack: list[Any] = []
    marked: list[list[Any]] = []
    memo: dict[int, Any] = {}
    storages: dict[str, Storage] = {}
    argument: Any
    for operation, argument, _ in pickletools.genops(file):
        code = operation.name
        if code in _PUSHED:
            stack.append(argument)
        elif code in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif code in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif code == "MARK":
            marked.append(stack)
            stack = []
        elif code == "TUPLE":
            items, stack = stack, marked.pop()
            stack.append(tuple(items))
        elif code in _TUPLES:
            start = len(stack) - _TUPLES[code]
            stack[start:] = [tuple(stack[start:])]
        elif code == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_result(function.name, arguments))
        elif code == "BINPERSID":
            stack.append(_storage(storages, *stack.pop()))
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code == "EMPTY_DICT":
            stack.append(Items())
        elif code in ("EMPTY_LIST", "EMPTY_SET"):
            stack.append([])
        elif code in ("SETITEM", "APPEND"):
            count = 2 if code == "SETITEM" else 1
            added = stack[-count:]
            del stack[-count:]
            _add(stack[-1], added)
        elif code in ("SETITEMS", "APPENDS"):
            added, stack = stack, marked.pop()
            _add(stack[-1], added)
        elif code == "GLOBAL":
            stack.append(_named(argument.replace(" ", ".")))
        elif code == "NEWOBJ":
            _, kind = stack.pop(), stack.pop()
            stack.append(Named(kind.name))
        elif code == "BUILD":  # sets attributes, which no value here has
            stack.pop()
            if not isinstance(stack[-1], Items | Named):
                raise Unusable("an operation changes a tensor")
        elif code == "SHORT_BINSTRING":  # a string of Python 2
            stack.append(argument.encode("latin-1").decode())
        elif code == "STOP":
            return Pickled(stack.pop(), storages)
        elif code != "PROTO":
            raise Unusable(f"the operation {code} is not part of torch.save's format")
    raise Unusable("it ends early")


def _named(name: str) -> Named:
    if not name.startswith("torch.") and name not in _NAMED:
        raise Unusable(f"it contains an object of {name[:100]!a}, which is not part of a state dict")
    return Named(name)


def _add(target: Any, added: list[Any]) -> None:
    if isinstance(target, Items):
        target.items.extend(zip(added[::2], added[1::2], strict=True))
    elif isinstance(target, list):
        target.extend(added)
    elif not isinstance(target, Named):
        raise Unusable(f"an operation adds to a {type(target).__name__}")


def _storage(
    storages: dict[str, Storage], kind: str, named: Named, key: str, _: Any, count: int, *view: Any
) -> Storage:
    name = named.name.rpartition(".")[2]
    if kind != "storage" or name not in _STORAGES or any(one is not None for one in view):
        raise Unusable("it has an unknown kind of storage")
    if not isinstance(key, str) or len(key) > 100 or type(count) is not int or count < 0:
        raise Unusable("a storage has no key or no size")
    width, dtype = _STORAGES[name]
    return storages.setdefault(key, Storage(key, dtype, width, count))  # as torch does if a key repeats


def _result(function: str, arguments: tuple[Any, ...]) -> Any:
    """What a function would return; torch saves every tensor as a call of a function in `torch._utils`."""
    name = function.rpartition(".")[2]
    if function == "collections.OrderedDict":
        return Items(*arguments)  # of no items, or of a list of pairs in Python 2
    if name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"):
        return _tensor(*arguments)
    if name in ("_rebuild_parameter", "_rebuild_parameter_with_state"):
        return arguments[0]
    if name == "_rebuild_from_type_v2":  # a tensor with attributes, or of a subclass
        inner, kind, inside, _ = arguments
        if kind.name in ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"):
            return _result(inner.name, inside)
        return Named(kind.name)
    return Named(function)


def _tensor(storage: Storage, offset: int, shape: Any, strides: Any, *more: Any) -> StoredTensor | Named:
    """``more``: requires_grad, hooks; a dtype in version 3; flags of a conjugate or negative view."""
    dtype = storage.dtype
    flags = more[2:]
    if flags and isinstance(flags[0], Named):
        dtype, flags = flags[0].name.removeprefix("torch."), flags[1:]
    if any(not isinstance(one, Items) or one.items for one in flags):
        return Named("a conjugate or negative view")
    if not len(shape) == len(strides) <= _MOST_AXES:
        raise Unusable(f"a tensor has {len(shape)} axes and {len(strides)} strides")
    if any(type(number) is not int or number < 0 for number in (offset, *shape, *strides)):
        raise Unusable("a tensor's shape, strides or offset is not a whole number")
    return StoredTensor(storage, dtype, offset, tuple(shape), tuple(strides))
