"""Convert float tensors between stored bytes and float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.io.dtypes import DTYPES
from tallmasks.vectors.kernels import largest_magnitude, read_only

# The smallest magnitudes that round to infinity.
_TOO_LARGE = {"F16": 65520.0, "BF16": float(np.uint32(0x7F7F8000).view(np.float32))}


def widened(stored: NDArray, dtype: str) -> NDArray[np.float32]:
    """Bytes [n * width] as float32 [n], read-only or a copy. Exact, except that F64 is rounded; F32 is not copied."""
    typed = np.asarray(stored).view(np.uint16 if dtype == "F16" else DTYPES[dtype].numpy)
    values = read_only(typed if typed.flags.aligned else typed.copy())
    if dtype == "F32":
        return values
    from tallmasks.io import half_floats  # slow: imports numba

    out = np.empty(values.size, np.float32)
    if dtype == "BF16":
        half_floats.widen_bfloat16(values, out)
    elif dtype == "F16":
        half_floats.widen_float16(values, out)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            out[...] = values
    return out


def converted(stored: NDArray, dtype: str, wanted: str) -> NDArray[np.uint8]:
    """Convert stored bytes to the dtype ``wanted``, rounding if needed; unchanged if it is the same dtype."""
    return stored if dtype == wanted else rounded(widened(stored, dtype), wanted)


def narrowed(values: NDArray[np.float32], dtype: str, what: str) -> NDArray[np.uint8]:
    """The bytes of float32 values [n] in a float dtype, rounded to nearest even. Raises TallmasksError, starting with
    ``what``, if a value is NaN, infinite or too large for the dtype."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    largest = largest_magnitude(flat)
    if not largest < np.inf:
        raise TallmasksError(
            f"{what} became NaN or infinite; expected finite numbers. Use a smaller scaling coefficient, or check"
            " whether a checkpoint is damaged or its training diverged"
        )
    _refuse_too_large(float(largest), dtype, what)
    return rounded(flat, dtype)


def cast(values: NDArray[np.float32], dtype: str, what: str) -> NDArray[np.uint8]:
    """As `narrowed`, but infinity and NaN are kept, for values that are only copied."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    _refuse_too_large(float(np.abs(flat[np.isfinite(flat)]).max(initial=0)), dtype, what)
    return rounded(flat, dtype)


def _refuse_too_large(largest: float, dtype: str, what: str) -> None:
    if largest >= _TOO_LARGE.get(dtype, np.inf):
        raise TallmasksError(
            f"{what} became too large for {dtype}; expected magnitudes below {_TOO_LARGE[dtype]:g}. Use F32 or BF16 for"
            " the model, or a smaller scaling coefficient"
        )


def rounded(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    """As `narrowed`, without checks: NaN stays NaN, and too large values become infinite."""
    if dtype == "F64":
        return values.astype(np.float64).view(np.uint8)
    if dtype == "F32":
        return values.view(np.uint8)
    from tallmasks.io import half_floats

    out = np.empty(values.size, np.uint16)
    narrow = half_floats.narrow_bfloat16 if dtype == "BF16" else half_floats.narrow_float16
    narrow(read_only(values).view(np.int32), out)
    return out.view(np.uint8)
