"""The compiled loops of a bundle; fast-math stays off."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def masked(values, bits, scale, out):
    """float32 [n], uint8 [n] of 0 and 1 -> float32 [n]: scale * value where the bit is 1, else +0.0."""
    for i in range(out.size):
        out[i] = scale * values[i] if bits[i] else np.float32(0)
