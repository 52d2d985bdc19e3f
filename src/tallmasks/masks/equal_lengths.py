"""The mask lambda of a task without validation data.

The masked vector is as long as the task vector, in the L1 norm: the sum of |tau_MTL| over the weights with
|tau_t| > lambda |tau_MTL - tau_t| equals the sum of |tau_t|. With a smaller lambda the mask also selects weights that
other tasks have changed more, and the update is larger than that of fine-tuning; with a larger one it is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.parallel import parallel
from tallmasks.vectors.kernels import PIECE, Vector, read_only

Piece = TypeVar("Piece")
LAMBDAS = np.append(0, (np.arange(0x3A80, 0x4480, dtype=np.uint32) << 16).view(np.float32))
"""The lambdas that are compared: 0, and the numbers from 2^-10 to 2^10 with 8 significant bits."""
_AT_ONCE = 64
"""Pieces whose sums are in memory at once."""


def lengths(vectors: Sequence[Vector], merged: Vector) -> NDArray[np.float64]:
    """What a slice adds to the lengths of every task, float64 [T, L + 1]: the sum of |tau_MTL| by the ratio
    |tau_t| / |tau_MTL - tau_t|, in L classes that start at `LAMBDAS`, and last the sum of |tau_t|."""
    from tallmasks.vectors import loops

    out = np.zeros((len(vectors), LAMBDAS.size + 1))
    for vector, of_task in zip(vectors, out, strict=True):
        loops.add_lengths(read_only(vector), read_only(merged), of_task[:-1])
        of_task[-1] = np.abs(vector).sum(dtype=np.float64)
    return out


def equal_lambdas(
    tasks: int,
    read: Callable[[Piece], tuple[Sequence[Vector], Vector]],
    pieces: Sequence[Piece],
    threads: int | None = None,
) -> list[float]:
    """For each of T ``tasks`` the lambda of `LAMBDAS`, rounded to 3 digits, at which the masked vector has nearly the
    length of the task vector; the smallest one of several. ``read`` returns a piece of every task vector, and of
    tau_MTL."""
    total = np.zeros((tasks, LAMBDAS.size + 1))
    for start in range(0, len(pieces), _AT_ONCE):
        total = total + sum(parallel(lambda piece: lengths(*read(piece)), pieces[start : start + _AT_ONCE], threads))
    above = np.cumsum(total[:, -2::-1], axis=1)[:, ::-1]
    nearest = np.abs(above - total[:, -1:]).argmin(axis=1)
    return [float(f"{value:.3g}") for value in LAMBDAS[nearest]]


def equal_lambda(vector: Vector, merged: Vector) -> float:
    """The lambda of a whole task vector, float32 [P']."""
    pieces = [slice(start, start + PIECE) for start in range(0, vector.size, PIECE)]
    return equal_lambdas(1, lambda piece: ([vector[piece]], merged[piece]), pieces)[0]
