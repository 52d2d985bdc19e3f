"""The compiled loops of a bundle; fast-math stays off."""

import numpy as np
from numba import njit

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_BUCKET = np.uint32(20)


@njit(nogil=True, cache=True)
def masked(values, bits, scale, out):
    """float32 [n], uint8 [n] of 0 and 1 -> float32 [n]: scale * value where the bit is 1, else +0.0."""
    for i in range(out.size):
        out[i] = scale * values[i] if bits[i] else np.float32(0)


@njit(nogil=True, cache=True)
def sort_bits(values, bits, by_magnitude, back):
    """uint8 [n], one a value of float32 [n] -> the same by the magnitude of their values; ``back``: the other way.

    Magnitudes are equal where exponent and the first three bits behind it are; what is equal stays as it lies.
    """
    patterns = values.view(np.uint32)
    ends = np.zeros((1 << 11) + 1, np.int64)
    for i in range(patterns.size):
        ends[np.int64((patterns[i] & _MAGNITUDE) >> _BUCKET) + 1] += 1
    for i in range(1 << 11):
        ends[i + 1] += ends[i]
    for i in range(patterns.size):
        bucket = np.int64((patterns[i] & _MAGNITUDE) >> _BUCKET)
        place = ends[bucket]
        ends[bucket] = place + 1
        if back:
            bits[i] = by_magnitude[place]
        else:
            by_magnitude[place] = bits[i]
