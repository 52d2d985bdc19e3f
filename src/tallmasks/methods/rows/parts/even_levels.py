"""Rounding to evenly spaced levels between the extreme values of a tensor, as in TVQ and RTVQ."""

from typing import Any, Literal

import numpy as np

from tallmasks.methods.rows.parts.arrays_and_tensors import beside, nearest_integers
from tallmasks.methods.rows.parts.layers_in_blocks import is_linear_layer

Bits = Literal[2, 3, 4, 8]
"""Bits per value, for 2^bits levels."""


def is_rounded(name: str, shape: tuple[int, ...]) -> bool:
    """True for linear layers and convolutions. The official code skips biases, norms, embeddings."""
    return is_linear_layer(name, shape) or len(shape) == 4


def evenly_rounded(tensor: Any, bits: int) -> Any:
    """(n + round(s min)) / s in float32, where n = round(s x - round(s min)), from 0 to 2^bits - 1, and
    s = (2^bits - 1) / (max - min). A tensor of equal values stays as it is."""
    low, high, last = np.float32(tensor.min()), np.float32(tensor.max()), 2**bits - 1
    is_even = high - low < np.finfo(np.float32).tiny * 2**bits  # the scale would be infinite
    scale = np.float32(0) if is_even else np.float32(1) / (high - low) * np.float32(last)  # as torch divides
    zero = np.rint(scale * low)
    numbers = nearest_integers(tensor * scale - zero).clip(0, last)
    levels = (np.arange(last + 1, dtype=np.float32) + zero) / (scale or np.float32(1)) + (0 if scale else low)
    return beside(levels, tensor)[numbers]
