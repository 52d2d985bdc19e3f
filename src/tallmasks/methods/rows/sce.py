"""SCE: select the weights in which tasks differ most, weigh tasks by their squares, erase minority signs."""

import numpy as np

from tallmasks.methods import PAST_ONE, Scaled, Share, TensorPiece, Vector, merge, merged_row


@merge("sce", over="tensors")
def sce(tensors: Vector, piece: TensorPiece, facts: None, *, select_topk: Share = 1.0) -> Vector:
    """float32 [T, ...] -> [...]: of the weights that vary over the tasks at all, those int(select_topk * n) with the
    largest variance stay.  A task counts by the mean of its squares.  The weighted mean is of what has the sign of the
    sum, plus where the sum is 0.

    It is the paper's formula.  mergekit (merge_methods/sce.py) takes equal weights where the means sum to less than
    1e-6, which is usual for task vectors: changes of 3e-4 are enough for it.
    """
    vectors = tensors.reshape(len(tensors), -1)
    if select_topk < 1:
        mean = vectors.mean(axis=0)
        variance = sum(np.square(vector - mean) for vector in vectors) / np.float32(len(vectors))
        dropped = np.argsort(-variance, kind="stable")[int(np.count_nonzero(variance) * select_topk) :]
        vectors[:, dropped] = 0  # a copy of the caller's
    squares = np.einsum("tn,tn->t", vectors, vectors, dtype=np.float64)
    if not squares.any():
        return np.zeros_like(tensors[0])
    sign = np.where(vectors.sum(axis=0) >= 0, np.float32(1), np.float32(-1))
    merged, total = np.zeros_like(vectors[0]), np.zeros_like(vectors[0])
    for vector, weight in zip(vectors, (squares / squares.sum()).astype(np.float32), strict=True):
        agreeing = weight * (np.sign(vector) == sign)
        merged += vector * agreeing
        total += agreeing
    np.divide(merged, total, out=merged, where=total > 0)
    return merged.reshape(tensors.shape[1:])


merged_row(
    "sce", row=47, title="SCE", paper="Wan et al. 2024", protocol=Scaled(PAST_ONE, unvalidated=1.0), group="later"
)
