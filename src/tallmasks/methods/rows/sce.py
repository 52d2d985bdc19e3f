"""SCE: selects the weights that differ most between tasks, weights tasks by their squares, drops minority signs."""

import numpy as np

from tallmasks.methods import ALPHAS_TO_3, Scaled, Share, TensorPiece, Vector, merge, merged_row


@merge("sce", over="tensors")
def sce(tensors: Vector, piece: TensorPiece, prepared: None, *, select_topk: Share = 1.0) -> Vector:
    """float32 [T, ...] -> [...]: of the n weights that vary between tasks, keeps the int(select_topk * n) of largest
    variance. Then takes the mean, weighted by each task's mean square, of the values with the sign of the sum (plus if
    the sum is 0).

    This is the paper's formula. mergekit (merge_methods/sce.py) uses equal weights if the mean squares sum to less than
    1e-6, which is common for task vectors (changes of 3e-4 for 8 tasks).
    """
    vectors = tensors.reshape(len(tensors), -1)
    if select_topk < 1:
        mean = vectors.mean(axis=0)
        variance = sum(np.square(vector - mean) for vector in vectors) / np.float32(len(vectors))
        dropped = np.argsort(-variance, kind="stable")[int(np.count_nonzero(variance) * select_topk) :]
        vectors[:, dropped] = 0  # already a copy of the caller's data
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
    "sce", order=47, title="SCE", paper="Wan et al. 2024", usage=Scaled(ALPHAS_TO_3, unvalidated=1.0), group="later"
)
