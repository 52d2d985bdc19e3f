"""Float tensors between their bytes in a file and float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.dtypes import DTYPES
from tallmasks.store.errors import TallmasksError


class Runs(NamedTuple):
    """Where values lie in memory whose difference is asked for, R runs of them, one after the other."""

    dtype: str
    """F32, BF16 or F16."""
    after: NDArray[np.uint64]
    """[R], addresses of theta_t's values."""
    before: NDArray[np.uint64]
    """[R], of theta_0's."""
    counts: NDArray[np.int64]
    """[R], how many values."""


def typed(stored: NDArray[np.uint8], dtype: str) -> NDArray:
    """The values [n] of bytes, aligned and read-only: float32, float64, or float16 and bfloat16 as bits, uint16.

    What was typed before comes back as it is, so that views, which take longer than short loops, are made once.
    """
    if stored.dtype != np.uint8:
        return stored
    return read_only(
        np.require(np.asarray(stored).view(np.uint16 if dtype == "F16" else DTYPES[dtype].numpy), requirements="A")
    )


def widened(stored: NDArray, dtype: str) -> NDArray[np.float32]:
    """Bytes [n * width], or their values typed, as float32 [n]; exact but for F64, which is rounded, F32 not copied."""
    values = typed(stored, dtype)
    if dtype == "F32":
        return values
    out = np.empty(values.size, np.float32)
    if dtype == "BF16":
        _compiled().widen_bfloat16(values, out)
    elif dtype == "F16":
        _compiled().widen_float16(values, out)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            out[...] = values
    return out


def subtracted(after: NDArray, after_dtype: str, before: NDArray, before_dtype: str) -> NDArray[np.float32]:
    """float32(after) - float32(before) in float32 [n], from bytes of two float dtypes, or their values typed."""
    loops = _compiled()
    after, before = typed(after, after_dtype), typed(before, before_dtype)
    out = np.empty(after.size, np.float32)
    if after_dtype != before_dtype or after_dtype == "F64":
        after, before = read_only(widened(after, after_dtype)), read_only(widened(before, before_dtype))
        after_dtype = "F32"
    if after_dtype == "F32":
        loops.subtract_float32(after, before, out)
    elif after_dtype == "BF16":
        loops.subtract_bfloat16(after, before, out)
    else:
        loops.subtract_float16(after, before, out)
    return out


def differences(places: NDArray[np.uint64], dtype: str, size: int) -> tuple[NDArray[np.float32], int]:
    """What lies at the addresses places[1:] less what lies at the first, float32 [T, size], and the number of the first
    row that holds NaN or infinity, or T; of F32, BF16 or F16, ``size`` values each, aligned."""
    out = np.empty((len(places) - 1, size), np.float32)
    return out, int(_compiled().differences(_code(dtype), places, out))


def gathered(runs: Runs) -> NDArray[np.float32]:
    """The differences of runs, one after the other."""
    out = np.empty(int(runs.counts.sum()), np.float32)
    _compiled().gather(_code(runs.dtype), *runs[1:], out)
    return out


def collecting(runs: Runs) -> Callable[..., tuple[int, int]]:
    """`tallmasks.vectors.loops.collect_between` of the differences of runs, which are not kept."""
    return partial(_compiled().collect_between, _code(runs.dtype), *runs[1:])


def _code(dtype: str) -> int:
    loops = _compiled()
    return int({"F32": loops.FLOAT32, "BF16": loops.BFLOAT16, "F16": loops.FLOAT16}[dtype])


def narrowed(values: NDArray[np.float32], dtype: str, what: str) -> NDArray[np.uint8]:
    """The bytes of float32 values [n] as a float dtype, rounded to nearest, ties to even.

    Raises TallmasksError, beginning with ``what``, where a value is NaN or infinite, or too large for the dtype.
    """
    loops = _compiled()
    flat = read_only(np.ascontiguousarray(values, np.float32).reshape(-1))
    patterns = flat.view(np.int32)
    out: NDArray = np.empty(flat.size, np.uint16)
    if dtype == "BF16":
        problem = loops.narrow_bfloat16(patterns, out)
    elif dtype == "F16":
        problem = loops.narrow_float16(patterns, out)
    else:
        problem = loops.check_float32(patterns)
        out = flat if dtype == "F32" else flat.astype(np.float64)
    if problem == loops.NOT_FINITE:
        raise TallmasksError(
            f"{what} became NaN or infinite; expected finite numbers. Look for NaN in the checkpoints, or take a"
            " smaller scaling coefficient"
        )
    if problem == loops.TOO_LARGE:
        raise TallmasksError(
            f"{what} became too large for {dtype}; expected numbers that it can hold. Write the model as F32 or BF16,"
            " or take a smaller scaling coefficient"
        )
    return out.view(np.uint8)


def read_only(array: NDArray) -> NDArray:
    """A plain read-only view: memory maps and arrays then share one compiled loop."""
    view = np.asarray(array)[:]
    view.flags.writeable = False
    return view


@cache
def _compiled() -> ModuleType:
    from tallmasks.vectors import half_floats

    return half_floats
