"""Model Stock: the mean of the models, moved towards the pretrained model if their task vectors disagree."""

from itertools import combinations

import numpy as np

from tallmasks.methods import Fixed, TensorPiece, Vector, merge, merged_row

SINGULAR = 1e-6


@merge("model_stock", over="tensors")
def model_stock(tensors: Vector, piece: TensorPiece, prepared: None, *, filter_wise: bool = False) -> Vector:
    """float32 [T, ..., n] -> [..., n]: t times the mean, with t = T cos / (1 + (T - 1) cos) and cos the mean cosine
    between two tasks' tensors, or between their rows with `filter_wise` (Jang et al. 2024, Eq. 4). A scalar is one row.

    As in mergekit (merge_methods/model_stock.py), t is 0 if 1 + (T - 1) cos is close to 0. mergekit also clamps the
    product of two lengths to at least 1e-6, which changes the cosine of short vectors; this is not done here.
    """
    tasks = len(tensors)
    rows = tensors if filter_wise and tensors.ndim > 1 else tensors.reshape(tasks, -1)
    if tasks == 1:
        return tensors[0]

    def product(one: Vector, other: Vector) -> Vector:
        return np.einsum("...n,...n->...", one, other, dtype=np.float64)

    norms = [np.sqrt(product(row, row)) for row in rows]
    cosines = [
        product(rows[one], rows[other]) / np.maximum(norms[one] * norms[other], np.finfo(np.float64).tiny)
        for one, other in combinations(range(tasks), 2)
    ]
    cosine = np.mean(cosines, axis=0)
    below = 1 + (tasks - 1) * cosine
    singular = abs(below) < SINGULAR
    share = np.where(singular, 0, tasks * cosine / np.where(singular, 1, below))
    return (rows.mean(axis=0) * share[..., None].astype(np.float32)).reshape(tensors.shape[1:])


merged_row("model_stock", order=23, title="Model Stock", paper="Jang et al. 2024", usage=Fixed(1.0), group="later")
