"""Rounds the rows of a matrix to a few levels, for arrays and torch tensors alike."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from itertools import pairwise
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.vectors.kernels import PIECE, in_pieces

Bits = Literal[2, 3, 4, 8]
"""Bits per value, for 2^bits levels."""
SAMPLE = 1 << 18
"""Levels are fitted to about this many values of a tensor."""
_NORMAL_STEPS, _FITTING_STEPS = 200, 30


class Rounded(NamedTuple):
    """A tensor whose values are levels times scales.

    Attributes:
        index: the number of each value's level, integers [shape].
        levels: float32 [2^bits].
        scales: float32 [groups], one for each group of consecutive values.
    """

    index: Any
    levels: Any
    scales: Any


@functools.cache
def normal_levels(bits: int) -> NDArray[np.float32]:
    """The 2^bits levels with the least mean squared error for a standard normal variable (Lloyd 1982, Max 1960),
    ascending, float32: each is the mean of the values to which it is the nearest."""
    normal, count = NormalDist(), 2**bits
    wide = NormalDist(sigma=math.sqrt(3))  # the density of many levels is the cube root of the variable's
    levels = [wide.inv_cdf((number + 0.5) / count) for number in range(count)]
    for _ in range(_NORMAL_STEPS):
        edges = [(low + high) / 2 for low, high in pairwise(levels)]
        density = [0.0, *map(normal.pdf, edges), 0.0]
        below = [0.0, *map(normal.cdf, edges), 1.0]
        levels = [(density[i] - density[i + 1]) / (below[i + 1] - below[i]) for i in range(count)]
    return np.array([(high - low) / 2 for high, low in zip(levels, reversed(levels), strict=True)], np.float32)


def fitted_levels(values: Any, group: int, bits: int) -> NDArray[np.float32]:
    """The 2^bits levels for the values of a tensor, each divided by the root mean square of its row of ``group``
    values; ascending, float32. Lloyd's iteration from `normal_levels` on makes their mean squared error small. It uses
    every k-th row, about `SAMPLE` values, and no rows of zeros."""
    rows = values.reshape(-1, group)
    sample = rows[:: max(len(rows) * group // SAMPLE, 1)]
    wide = np.asarray(sample if isinstance(sample, np.ndarray) else sample.cpu(), np.float64)
    unit = np.sqrt(np.square(wide).mean(1, keepdims=True))[:, 0]
    ordered = np.sort((wide[unit > 0] / unit[unit > 0, None]).reshape(-1))
    sums, levels = np.append(0, np.cumsum(ordered)), normal_levels(bits).astype(np.float64)
    for _ in range(_FITTING_STEPS):
        ends = np.searchsorted(ordered, (levels[1:] + levels[:-1]) / 2, side="right")
        ends = np.concatenate([[0], ends, [ordered.size]])
        counts = np.diff(ends)
        levels = np.where(counts > 0, np.diff(sums[ends]) / np.maximum(counts, 1), levels)
    return levels.astype(np.float32)


def rounded_rows(values: Any, group: int, levels: NDArray[np.float32]) -> Rounded:
    """Rounds each value of a tensor to the nearest level, with a scale for each row of ``group`` values.

    For a row x with root mean square s, q is the row of the levels nearest to x / s, and the scale |x| / |q| keeps the
    row's length. The scale <x, q> / <q, q> would make the error smallest, but the row shorter: restored models are less
    accurate. A row of zeros has the scale 0.
    """
    rows = values.reshape(-1, group)
    if not isinstance(values, np.ndarray):
        import torch

        beside = torch.from_numpy(levels).to(values.device)
        index, scales = _rounded(rows, beside, torch.searchsorted, _tensor_as)
        return Rounded(index.reshape(values.shape), beside, scales)
    index, scales = np.empty(rows.shape, np.uint8), np.empty(len(rows), np.float32)

    def fill(part: slice) -> None:
        index[part], scales[part] = _rounded(rows[part], levels, _numbers_below, _array_as)

    in_pieces(len(rows), fill, max(PIECE // group, 1))
    return Rounded(index.reshape(values.shape), levels, scales)


def _rounded(rows: Any, levels: Any, search: Callable[..., Any], as_: Callable[[Any, str], Any]) -> tuple[Any, Any]:
    """The numbers of the levels, integers [m, n], and the scales, float32 [m], of float32 [m, n]."""
    wide = as_(rows, "float64")
    squares = (wide * wide).sum(1)
    unit = as_((squares / rows.shape[1]) ** 0.5, "float32")
    index = search((levels[1:] + levels[:-1]) / 2, rows / (unit + (unit == 0))[:, None])
    nearest = as_(levels, "float64")[index]
    lengths = (nearest * nearest).sum(1)
    return index, as_((squares / (lengths + (lengths == 0))) ** 0.5, "float32")


def _numbers_below(edges: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """For each value the number of edges below it, as `numpy.searchsorted` counts them, but faster for few edges."""
    numbers = np.zeros(values.shape, np.uint8)
    for edge in edges:
        numbers += values > edge
    return numbers


def _array_as(array: Any, dtype: str) -> Any:
    return array.astype(dtype)


def _tensor_as(tensor: Any, dtype: str) -> Any:
    import torch

    return tensor.to(getattr(torch, dtype))
