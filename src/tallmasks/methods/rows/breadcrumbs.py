"""Model Breadcrumbs: drops the largest and the smallest weights of every row of a task's tensors."""

import numpy as np

from tallmasks.methods import ALPHAS_TO_3, Scaled, Share, TensorPiece, Vector, merge, merged_row


@merge("breadcrumbs", over="tensors", sparsify="middle", combine="sum")
def breadcrumbs(
    tensors: Vector, piece: TensorPiece, prepared: None, *, middle: Share = 0.15, outliers: Share = 0.006
) -> Vector:
    """float32 [T, ..., n] -> [..., n]: in each row, drops the int(outliers * n) largest magnitudes, keeps the next
    int(middle * n) and drops the rest; then sums over the tasks. Scalars are kept.

    Like the official code (rezazzr/breadcrumbs, TaskVectorMiddleKeep), which works along the last dimension of every
    tensor and has the kept fraction as its parameter; the paper describes layers and dropped fractions. The defaults
    are the first values that the official code tries. Of equal magnitudes, the first counts as larger.
    """
    if tensors.ndim == 1:
        return tensors.sum(axis=0)
    length = tensors.shape[-1]
    first = int(length * outliers)
    last = first + int(length * middle)
    total = np.zeros_like(tensors[0])
    for tensor in tensors:
        kept = np.argsort(-abs(tensor), axis=-1, kind="stable")[..., first:last]
        values = np.take_along_axis(total, kept, -1) + np.take_along_axis(tensor, kept, -1)
        np.put_along_axis(total, kept, values, -1)
    return total


merged_row(
    "breadcrumbs",
    order=46,
    title="Model Breadcrumbs",
    paper="Davari and Belilovsky 2024",
    usage=Scaled(ALPHAS_TO_3),
    group="later",
)
