"""The mask lambda of a task without validation data.

The masked vector is as long as the task vector, in the L1 norm: the sum of |tau_MTL| over the weights with
|tau_t| > lambda |tau_MTL - tau_t| equals the sum of |tau_t|. With a smaller lambda the mask also selects weights that
other tasks have changed more, and the update is larger than that of fine-tuning; with a larger one it is smaller.

The merged vector of few tasks can be shorter than that (TIES keeps 20 % of each), and the mask would select all of it.
So the length is at most half of the merged vector's. And lambda is at most 0.6, the largest that the paper tries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.parallel import in_batches
from tallmasks.vectors.kernels import SLICE, Vector, read_only

Piece = TypeVar("Piece")
LAMBDAS = np.append(0, (np.arange(0x3A80, 0x3F1A, dtype=np.uint32) << 16).view(np.float32))
"""The lambdas that are compared: 0, and the numbers from 2^-10 to 0.6 with 8 significant bits."""


def lengths(vectors: Sequence[Vector], merged: Vector) -> NDArray[np.float64]:
    """What a slice adds to the lengths of every task, float64 [T, L + 2]: the sum of |tau_MTL| by the ratio
    |tau_t| / |tau_MTL - tau_t|, in L classes that start at `LAMBDAS`; then the sums of |tau_t| and of |tau_MTL|."""
    from tallmasks.vectors import loops

    out = np.zeros((len(vectors), LAMBDAS.size + 2))
    out[:, -1] = np.abs(merged).sum(dtype=np.float64)
    for vector, of_task in zip(vectors, out, strict=True):
        loops.add_lengths(read_only(vector), read_only(merged), of_task[:-2])
        of_task[-2] = np.abs(vector).sum(dtype=np.float64)
    return out


def lambdas_without_data(
    tasks: int,
    read: Callable[[Piece], tuple[Sequence[Vector], Vector]],
    pieces: Sequence[Piece],
    threads: int | None = None,
) -> list[float]:
    """For each of T ``tasks`` the lambda of `LAMBDAS`, rounded to 3 digits, at which the masked vector has nearly the
    length of the task vector, or half of that of tau_MTL if this is shorter; the smallest one of several. ``read``
    returns a piece of every task vector, and of tau_MTL."""
    total = np.zeros((tasks, LAMBDAS.size + 2))
    for of_piece in in_batches(lambda piece: lengths(*read(piece)), pieces, threads):
        total += of_piece
    above = np.cumsum(total[:, -3::-1], axis=1)[:, ::-1]
    wanted = np.minimum(total[:, -2], total[:, -1] / 2)
    nearest = np.abs(above - wanted[:, None]).argmin(axis=1)
    return [float(f"{value:.3g}") for value in LAMBDAS[nearest]]


def lambda_without_data(vector: Vector, merged: Vector) -> float:
    """The lambda of a whole task vector, float32 [P']."""
    pieces = [slice(start, start + SLICE) for start in range(0, vector.size, SLICE)]
    return lambdas_without_data(1, lambda piece: ([vector[piece]], merged[piece]), pieces)[0]
