"""Compiled conversions between float32 and float16 or bfloat16 bits (uint16); exact, or rounded to nearest even. NaN
stays NaN. int32 arithmetic without branches or float32 denormals compiles to fast vector instructions;
``-int32(condition)`` is a mask of 32 ones or zeros. Not NumPy's float16, which takes 8 to 17 times as long (2.5 and 5.8
ns a value). A separate module, because numba is slow to import."""

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.compiled import compiled

_ONE = np.int32(1)
_THIRTEEN = np.int32(13)
_SIXTEEN = np.int32(16)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_INFINITY = np.int32(0x7F800000)
_QUIET = np.int32(0x400000)
_HALF_SIGN = np.int32(0x8000)
_HALF_MAGNITUDE = np.int32(0x7FFF)
_HALF_INFINITY = np.int32(0x7C00)
_HALF_QUIET = np.int32(0x200)
_HALF_NORMAL = np.int32(0x400)
_HALF_LAST = np.float32(2.0**-24)
_REBIAS = np.int32((127 - 15) << 23)
_NORMAL = np.int32((127 - 14) << 23)
_BEYOND = np.int32((127 + 16) << 23)
_ALIGN = np.float32(0.5)  # its last bit is 2**-24, like a float16 denormal's: adding it rounds
_ALIGN_BITS = np.int32(126 << 23)
_BELOW_MIDDLE_FLOAT16 = np.int32(0xFFF)
_BELOW_MIDDLE_BFLOAT16 = np.int32(0x7FFF)


@compiled
def widen_bfloat16(bits: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
    """uint16 [n] -> float32 [n], exact."""
    for i in range(out.size):
        out[i] = np.int32(np.int32(bits[i]) << _SIXTEEN).view(np.float32)


@compiled
def widen_float16(bits: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
    """uint16 [n] -> float32 [n], exact."""
    for i in range(out.size):
        wide = np.int32(bits[i])
        magnitude = np.int32(wide & _HALF_MAGNITUDE)
        denormal = np.float32(np.float32(magnitude) * _HALF_LAST).view(np.int32)
        beyond = np.int32(-np.int32(magnitude >= _HALF_INFINITY))
        normal = np.int32(np.int32(np.int32(magnitude << _THIRTEEN) + _REBIAS) + np.int32(beyond & _REBIAS))
        small = np.int32(-np.int32(magnitude < _HALF_NORMAL))
        value = np.int32((denormal & small) | (normal & ~small))
        out[i] = np.int32(value | np.int32(np.int32(wide & _HALF_SIGN) << _SIXTEEN)).view(np.float32)


@compiled
def narrow_bfloat16(patterns: NDArray[np.int32], out: NDArray[np.uint16]) -> None:
    """int32 [n], float32 bits -> uint16 [n], rounded to nearest even."""
    for i in range(out.size):
        bits = np.int32(patterns[i])
        magnitude = np.int32(bits & _MAGNITUDE)
        odd = np.int32(np.int32(magnitude >> _SIXTEEN) & _ONE)
        rounded = np.int32(np.int32(magnitude + _BELOW_MIDDLE_BFLOAT16) + odd)
        nan = np.int32(-np.int32(magnitude > _INFINITY))
        value = np.int32((rounded & ~nan) | (np.int32(magnitude | _QUIET) & nan))
        sign = np.int32(np.int32(bits >> _SIXTEEN) & _HALF_SIGN)
        out[i] = np.uint16(np.int32(np.int32(value >> _SIXTEEN) | sign))


@compiled
def narrow_float16(patterns: NDArray[np.int32], out: NDArray[np.uint16]) -> None:
    """int32 [n], float32 bits -> uint16 [n], rounded to nearest even."""
    for i in range(out.size):
        bits = np.int32(patterns[i])
        magnitude = np.int32(bits & _MAGNITUDE)
        aligned = np.float32(np.int32(min(magnitude, _NORMAL)).view(np.float32) + _ALIGN)
        denormal = np.int32(np.float32(aligned).view(np.int32) - _ALIGN_BITS)
        odd = np.int32(np.int32(magnitude >> _THIRTEEN) & _ONE)
        rebiased = np.int32(magnitude - np.int32(_REBIAS - _BELOW_MIDDLE_FLOAT16))
        normal = np.int32(np.int32(rebiased + odd) >> _THIRTEEN)
        small = np.int32(-np.int32(magnitude < _NORMAL))
        value = np.int32((denormal & small) | (normal & ~small))
        beyond = np.int32(-np.int32(magnitude >= _BEYOND))
        value = np.int32((value & ~beyond) | (_HALF_INFINITY & beyond))
        nan = np.int32(-np.int32(magnitude > _INFINITY))
        value = np.int32(value | (_HALF_QUIET & nan))
        sign = np.int32(np.int32(bits >> _SIXTEEN) & _HALF_SIGN)
        out[i] = np.uint16(np.int32(value | sign))
