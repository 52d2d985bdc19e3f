"""TSV-M: the top singular vectors of all tasks, orthogonalised."""

import numpy as np

from tallmasks.methods import ALPHAS_TO_3, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.singular_vectors import (
    RoundingErrorOf,
    is_matrix,
    orthogonalised,
    rounding_errors,
    top_triplets,
)


@merge("tsv_m", over="tensors", prepare=rounding_errors, is_spectral=True)
def tsv_m(tensors: Vector, piece: TensorPiece, rounding_error_of: RoundingErrorOf) -> Vector:
    """float32 [T, m, n] -> [m, n]: U S V of the top floor(r / T) singular triplets of all tasks, concatenated, with r =
    min(m, n); U and V each replaced by the nearest orthogonal matrix. For r < T, and for all other tensors, the mean.

    As in the official code (AntoAndGar/task_singular_vectors, compute_and_sum_svd_mem_reduction), the float r * (1 / T)
    is rounded down, and `text_projection` is averaged. In that code a task that did not change a matrix adds arbitrary
    directions of weight 0, which rotate the others. Here triplets below the rounding errors are left out, and so are
    directions of U and V that tasks share up to these errors. If nothing exceeds the rounding errors, returns the mean.
    """
    shape, rank = tensors.shape[1:], int(min(tensors.shape[1:], default=0) * (1 / len(tensors)))
    if not is_matrix(shape) or "text_projection" in piece.name or not rank:
        return tensors.mean(axis=0)
    merged = orthogonalised([top_triplets(matrix, rank, rounding_error_of(piece.name)) for matrix in tensors])
    if not merged.singular.size:
        return tensors.mean(axis=0)
    return np.multiply(merged.left, merged.singular) @ merged.right


merged_row(
    "tsv_m",
    order=64,
    title="TSV-M",
    paper="Gargiulo et al. 2025",
    usage=Scaled(ALPHAS_TO_3, unvalidated=1.0),
    group="later",
)
