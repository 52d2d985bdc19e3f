"""DELLA: drops random weights, small ones more often, then elects signs and merges the values that agree."""

from typing import Annotated

import numpy as np

from tallmasks.errors import TallmasksError
from tallmasks.methods import ALPHAS_TO_3, Between, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.dare import Rate, keys_of_tasks
from tallmasks.methods.rows.parts.elected_signs import agreeing_or_plus
from tallmasks.methods.rows.parts.seeded_draws import draws

Epsilon = Annotated[float, Between(0, 0.5)]


@merge("della", over="tensors", prepare=keys_of_tasks, sparsify="drop", combine="disjoint_mean")
def della(
    tensors: Vector, piece: TensorPiece, keys: list[bytes], *, drop: Rate = 0.5, epsilon: Epsilon = 0.15
) -> Vector:
    """float32 [T, ...] -> [...]: keeps weights at random, with a probability that rises with the magnitude's rank in
    its row from 1 - drop - epsilon to 1 - drop + epsilon, and rescales each tensor to its original L1 norm. Then TIES'
    disjoint mean; if tasks cancel each other, the elected sign is plus.

    Like mergekit (sparsify.py, della_magprune), except for tensors of more than two axes: here all values with the same
    first index (a filter of a convolution) are one row; mergekit ranks along axis 1. The paper (Deep et al. 2024)
    divides by the probabilities instead.
    """
    if drop and not epsilon < min(drop, 1 - drop):
        raise TallmasksError(
            f"della: epsilon is {epsilon:g}; expected less than drop ({drop:g}) and 1 - drop; set epsilon too"
        )
    left = [pruned(tensor, key, piece, drop, epsilon).ravel() for tensor, key in zip(tensors, keys, strict=True)]
    return agreeing_or_plus(left, mean=True)


def pruned(tensor: Vector, key: bytes, piece: TensorPiece, drop: float, epsilon: float) -> Vector:
    """One task's tensor after dropping and rescaling."""
    if not drop:
        return tensor
    rows = tensor.reshape(len(tensor) if tensor.ndim > 1 else 1, -1)
    ranks = np.argsort(np.argsort(abs(rows), axis=1, kind="stable"), axis=1) / max(1, rows.shape[1] - 1)
    lots = draws(key, piece.name, 0, rows.size).reshape(rows.shape) / 2**32
    kept = np.where(lots < 1 - drop + epsilon * (2 * ranks - 1), rows, np.float32(0))
    before, after = (abs(values).sum(dtype=np.float64) for values in (rows, kept))
    return kept * np.float32(before / after if after else 1)


merged_row(
    "della",
    order=38,
    title="DELLA",
    paper="Deep et al. 2024",
    usage=Scaled(ALPHAS_TO_3, unvalidated=1.0),
    group="later",
)
