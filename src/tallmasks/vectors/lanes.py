"""Sixteen float32 values at once, in compiled loops: each operation is one of LLVM's on vectors, for which it takes
whatever instructions the processor has.

What a compiler makes of a loop over single values hangs on what it can prove of it; here nothing is left to prove.
Each value is worked on by itself, as IEEE 754 says, so that results are those of such a loop.  Comparisons give bits,
uint16, the lowest for the first value.  An address is that of the first value, uint64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

WIDTH = 16

_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_PATTERNS = ir.VectorType(ir.IntType(32), WIDTH)
_FLAGS = ir.VectorType(ir.IntType(1), WIDTH)
_HALVES = ir.VectorType(ir.IntType(16), WIDTH)
_SMALL = ir.VectorType(ir.IntType(8), WIDTH)
_BITS = ir.IntType(WIDTH)


class LanesType(types.Type):
    """What variables are of that hold such values, in registers."""

    def __init__(self) -> None:
        super().__init__("Lanes")


@register_model(LanesType)
class LanesModel(models.PrimitiveModel):
    """As LLVM has them."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)


_LANES = LanesType()


def _operation(result: types.Type, *given: types.Type) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: a function for compiled code from one that writes its instructions, ``(builder, *values)``."""

    def declare(write: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return write(builder, *values)

        typed = result(*given), generate
        by_count = {1: lambda context, a: typed, 2: lambda context, a, b: typed, 3: lambda context, a, b, c: typed}
        return intrinsic(by_count[len(given)])

    return declare


def _in_all(builder: Any, value: Any) -> Any:
    """A value in every lane."""
    kind = ir.VectorType(value.type, WIDTH)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    order = _patterns(0)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), order)


def _zeros() -> Any:
    return ir.Constant(_FLOATS, [0.0] * WIDTH)


def _patterns(value: int) -> Any:
    """A bit pattern in every lane."""
    return ir.Constant(_PATTERNS, [value] * WIDTH)


def _magnitudes(builder: Any, values: Any) -> Any:
    """Bit patterns without the sign."""
    return builder.and_(builder.bitcast(values, _PATTERNS), _patterns(0x7FFFFFFF))


@_operation(_LANES, types.uint64)
def load(builder: Any, address: Any) -> Any:
    """The values there."""
    return builder.load(builder.inttoptr(address, _FLOATS.as_pointer()), align=4)


@_operation(types.void, types.uint64)
def prefetch(builder: Any, address: Any) -> Any:
    """Have what lies there, if anything does, fetched into the caches."""
    pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    name = "llvm.prefetch.p0i8"
    function = builder.module.globals.get(name) or ir.Function(
        builder.module, ir.FunctionType(ir.VoidType(), [pointer, number, number, number]), name
    )
    builder.call(function, [builder.inttoptr(address, pointer), number(0), number(3), number(1)])  # read, keep, data


@_operation(_LANES, types.uint64)
def load_bfloat16(builder: Any, address: Any) -> Any:
    """The bfloat16 values there; exact."""
    halves = builder.load(builder.inttoptr(address, _HALVES.as_pointer()), align=2)
    return builder.bitcast(builder.shl(builder.zext(halves, _PATTERNS), _patterns(16)), _FLOATS)


@_operation(_LANES, types.uint64)
def load_int8(builder: Any, address: Any) -> Any:
    """The int8 values there; exact."""
    return builder.sitofp(builder.load(builder.inttoptr(address, _SMALL.as_pointer()), align=1), _FLOATS)


@_operation(types.uint16, types.uint64)
def load_bits(builder: Any, address: Any) -> Any:
    """Bits out of two bytes."""
    return builder.load(builder.inttoptr(address, _BITS.as_pointer()), align=1)


@_operation(types.void, types.uint64, _LANES)
def store(builder: Any, address: Any, values: Any) -> Any:
    """Put them there."""
    builder.store(values, builder.inttoptr(address, _FLOATS.as_pointer()), align=4)


@_operation(types.void, types.uint64, _LANES)
def store_bfloat16(builder: Any, address: Any, values: Any) -> Any:
    """Put them there as bfloat16, rounded to nearest even; NaN stays NaN."""
    patterns = builder.bitcast(values, _PATTERNS)
    odd = builder.and_(builder.lshr(patterns, _patterns(16)), _patterns(1))
    rounded = builder.add(builder.add(patterns, _patterns(0x7FFF)), odd)
    nan = builder.fcmp_unordered("uno", values, values)
    found = builder.select(nan, builder.or_(patterns, _patterns(0x400000)), rounded)
    halves = builder.trunc(builder.lshr(found, _patterns(16)), _HALVES)
    builder.store(halves, builder.inttoptr(address, _HALVES.as_pointer()), align=2)


@_operation(types.void, types.uint64, types.uint16)
def store_bits(builder: Any, address: Any, bits: Any) -> Any:
    """Put bits into two bytes."""
    builder.store(bits, builder.inttoptr(address, _BITS.as_pointer()), align=1)


@_operation(_LANES, types.float32)
def all_of(builder: Any, value: Any) -> Any:
    """Sixteen times a value."""
    return _in_all(builder, value)


@_operation(_LANES, _LANES, _LANES)
def add(builder: Any, left: Any, right: Any) -> Any:
    """left + right"""
    return builder.fadd(left, right)


@_operation(_LANES, _LANES, _LANES)
def subtract(builder: Any, left: Any, right: Any) -> Any:
    """left - right"""
    return builder.fsub(left, right)


@_operation(_LANES, _LANES, _LANES)
def multiply(builder: Any, left: Any, right: Any) -> Any:
    """left * right"""
    return builder.fmul(left, right)


@_operation(_LANES, _LANES, _LANES)
def divide(builder: Any, left: Any, right: Any) -> Any:
    """left / right"""
    return builder.fdiv(left, right)


@_operation(_LANES, _LANES)
def magnitude(builder: Any, values: Any) -> Any:
    """|value|"""
    return builder.bitcast(_magnitudes(builder, values), _FLOATS)


@_operation(types.uint16, _LANES, _LANES)
def above(builder: Any, left: Any, right: Any) -> Any:
    """Where left > right; not where one is NaN."""
    return builder.bitcast(builder.fcmp_ordered(">", left, right), _BITS)


@_operation(types.uint16, _LANES, _LANES)
def at_least(builder: Any, left: Any, right: Any) -> Any:
    """Where left >= right; not where one is NaN."""
    return builder.bitcast(builder.fcmp_ordered(">=", left, right), _BITS)


@_operation(types.uint16, _LANES, types.uint32, types.uint32)
def patterns_within(builder: Any, values: Any, low: Any, width: Any) -> Any:
    """Where the bit pattern without the sign is one of `width` from `low` on."""
    beyond = builder.sub(_magnitudes(builder, values), _in_all(builder, low))
    return builder.bitcast(builder.icmp_unsigned("<", beyond, _in_all(builder, width)), _BITS)


@_operation(_LANES, types.uint16, _LANES, _LANES)
def chosen(builder: Any, bits: Any, left: Any, right: Any) -> Any:
    """left where the bit is 1, else right."""
    return builder.select(builder.bitcast(bits, _FLAGS), left, right)


@_operation(types.uint64, types.uint16)
def count(builder: Any, bits: Any) -> Any:
    """How many bits are 1."""
    return builder.ctpop(builder.zext(bits, ir.IntType(64)))


@_operation(types.uint64, types.uint16)
def lowest(builder: Any, bits: Any) -> Any:
    """The place of the lowest bit that is 1, of which there must be one."""
    return builder.zext(builder.cttz(bits, ir.Constant(ir.IntType(1), 1)), ir.IntType(64))


@_operation(types.CPointer(types.float32), types.uint64)
def floats_at(builder: Any, address: Any) -> Any:
    """A pointer for numba's carray: rows may lie anywhere, and how many there are is no type."""
    return builder.inttoptr(address, ir.FloatType().as_pointer())


@_operation(types.CPointer(types.uint16), types.uint64)
def halves_at(builder: Any, address: Any) -> Any:
    """The same for values of 16 bits."""
    return builder.inttoptr(address, ir.IntType(16).as_pointer())


@_operation(types.CPointer(types.uint8), types.uint64)
def bytes_at(builder: Any, address: Any) -> Any:
    """The same for bytes."""
    return builder.inttoptr(address, ir.IntType(8).as_pointer())


@_operation(types.void, types.uint64, types.uint64, types.uint8)
def add_to_bytes(builder: Any, address: Any, bits: Any, amount: Any) -> Any:
    """Add an amount to those of 64 bytes whose bit in a word is 1."""
    kind = ir.VectorType(ir.IntType(8), 64)
    place = builder.inttoptr(address, kind.as_pointer())
    before = builder.load(place, align=1)
    empty, order = ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
    first = builder.insert_element(empty, amount, ir.Constant(ir.IntType(32), 0))
    added = builder.add(before, builder.shuffle_vector(first, empty, order))
    chosen_bytes = builder.select(builder.bitcast(bits, ir.VectorType(ir.IntType(1), 64)), added, before)
    builder.store(chosen_bytes, place, align=1)
