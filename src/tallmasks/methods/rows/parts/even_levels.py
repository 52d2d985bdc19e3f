"""Rounding to evenly spaced levels between the extreme values of a tensor, as in TVQ and RTVQ."""

from typing import Any

import numpy as np

from tallmasks.bundles.codings import Coding, Dense, Levels
from tallmasks.methods.rows.parts.arrays_and_tensors import beside, nearest_integers
from tallmasks.methods.rows.parts.layers_in_blocks import is_linear_layer
from tallmasks.vectors.levels import Rounded


def even_coding(shape: tuple[int, ...], name: str, bits: int) -> Coding:
    """`Levels` with one scale for linear layers and convolutions. The official code skips biases, norms, embeddings."""
    is_rounded = is_linear_layer(name, shape) or len(shape) == 4
    return Levels(shape, bits, max(int(np.prod(shape)), 1)) if is_rounded else Dense(shape)


def evenly_rounded(tensor: Any, bits: int) -> Rounded:
    """round(s x - round(s min)) of 0 to 2^bits - 1, where s = (2^bits - 1) / (max - min); the value of a number n is
    (n + round(s min)) / s, in float32. A tensor of equal values stays as it is."""
    low, high, last = np.float32(tensor.min()), np.float32(tensor.max()), 2**bits - 1
    is_even = high - low < np.finfo(np.float32).tiny * 2**bits  # the scale would be infinite
    scale = np.float32(0) if is_even else np.float32(1) / (high - low) * np.float32(last)  # as torch divides
    zero = np.rint(scale * low)
    index = nearest_integers(tensor * scale - zero).clip(0, last)
    levels = (np.arange(last + 1, dtype=np.float32) + zero) / (scale or np.float32(1)) + (0 if scale else low)
    return Rounded(index, beside(levels, tensor), beside(np.ones(1, np.float32), tensor))
