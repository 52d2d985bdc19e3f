"""SCE: select the weights in which tasks differ most, weigh tasks by their squares, erase minority signs."""

import numpy as np

from tallmasks.methods import PAST_ONE, Scaled, Share, TensorPiece, Vector, merge, merged_row


@merge("sce", over="tensors")
def sce(tensors: Vector, place: TensorPiece, facts: None, *, select_topk: Share = 1.0) -> Vector:
    """float32 [T, ...] -> [...]: of the weights that vary over the tasks at all, those int(select_topk * n) with the
    largest variance stay.  A task counts by the mean of its squares.  The weighted mean is of what has the sign of the
    sum, plus where the sum is 0.

    It is the paper's formula.  mergekit (merge_methods/sce.py) takes equal weights where the means sum to less than
    1e-6, which is usual for task vectors: changes of 3e-4 are enough for it.
    """
    rows = tensors.reshape(len(tensors), -1)
    if select_topk < 1:
        mean = rows.mean(axis=0)
        variance = sum(np.square(row - mean) for row in rows) / np.float32(len(rows))
        dropped = np.argsort(-variance, kind="stable")[int(np.count_nonzero(variance) * select_topk) :]
        rows[:, dropped] = 0  # a copy of the caller's
    squares = np.einsum("tn,tn->t", rows, rows, dtype=np.float64)
    if not squares.any():
        return np.zeros_like(tensors[0])
    sign = np.where(rows.sum(axis=0) >= 0, np.float32(1), np.float32(-1))
    merged, total = np.zeros_like(rows[0]), np.zeros_like(rows[0])
    for row, weight in zip(rows, (squares / squares.sum()).astype(np.float32), strict=True):
        agreeing = weight * (np.sign(row) == sign)
        merged += row * agreeing
        total += agreeing
    np.divide(merged, total, out=merged, where=total > 0)
    return merged.reshape(tensors.shape[1:])


merged_row(
    "sce", row=47, title="SCE", paper="Wan et al. 2024", protocol=Scaled(PAST_ONE, unvalidated=1.0), group="later"
)
