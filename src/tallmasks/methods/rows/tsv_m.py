"""TSV-M: the top singular vectors of every task, made orthogonal to those of the others."""

import numpy as np

from tallmasks.methods import PAST_ONE, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.singular_vectors import (
    NoiseOf,
    is_matrix,
    noise_of_tasks,
    orthogonalised,
    top_triplets,
)


@merge("tsv_m", over="tensors", prepare=noise_of_tasks)
def tsv_m(tensors: Vector, piece: TensorPiece, noise_of: NoiseOf) -> Vector:
    """float32 [T, m, n] -> [m, n]: U S V of the top floor(r / T) singular triplets of all tasks side by side, r the
    smaller of m and n.  U and V are each replaced by the nearest orthogonal matrix; where r < T, and of any other
    tensor, the mean.

    As the official code (AntoAndGar/task_singular_vectors, compute_and_sum_svd_mem_reduction): r * (1 / T) is rounded
    down as a float, and `text_projection` is averaged.  There a task that left a matrix alone adds arbitrary directions
    of weight 0, which turn the others.  Here triplets below the noise are left out.  So are directions of U and V that
    two tasks share up to it; where nothing stands above the noise, the mean is taken.
    """
    shape, rank = tensors.shape[1:], int(min(tensors.shape[1:], default=0) * (1 / len(tensors)))
    if not is_matrix(shape) or "text_projection" in piece.name or not rank:
        return tensors.mean(axis=0)
    merged = orthogonalised([top_triplets(matrix, rank, noise_of(piece.name)) for matrix in tensors])
    if not merged.singular.size:
        return tensors.mean(axis=0)
    return np.multiply(merged.left, merged.singular) @ merged.right


merged_row(
    "tsv_m",
    row=64,
    title="TSV-M",
    paper="Gargiulo et al. 2025",
    protocol=Scaled(PAST_ONE, unvalidated=1.0),
    group="later",
)
