"""TSV-M: the top singular vectors of every task, made orthogonal to those of the others."""

import numpy as np

from tallmasks.methods import Vector, merge, method
from tallmasks.methods.rows.parts.singular_vectors import is_matrix, orthogonalised, top_triplets


@merge("tsv_m", paper="Gargiulo et al. 2025, TSV-Merge", over="tensors", named=True, noisy=True)
def tsv_m_merge(tensors: Vector, name: str, noise: float) -> Vector:
    """float32 [T, m, n] -> [m, n]: U S V of the top floor(r / T) singular triplets of all tasks side by side, r the
    smaller of m and n, with U and V each replaced by the nearest orthogonal matrix; where r < T, and of any other
    tensor, the mean.

    As the official code (AntoAndGar/task_singular_vectors, compute_and_sum_svd_mem_reduction): r * (1 / T) is rounded
    down as a float, and `text_projection` is averaged.  There a task that left a matrix alone adds arbitrary directions
    of weight 0, which turn the others.  Here triplets below the noise are left out, and so are directions of U and V
    that two tasks share up to it; where nothing stands above the noise, the mean is taken.
    """
    shape, rank = tensors.shape[1:], int(min(tensors.shape[1:], default=0) * (1 / len(tensors)))
    if not is_matrix(shape) or "text_projection" in name or not rank:
        return tensors.mean(axis=0)
    found = orthogonalised([top_triplets(matrix, rank, noise) for matrix in tensors])
    if not found.singular.size:
        return tensors.mean(axis=0)
    return np.multiply(found.left, found.singular) @ found.right


@method(
    name="tsv_m",
    row=64,
    title="TSV-M",
    section="merging",
    paper="Gargiulo et al. 2025",
    protocol="scaled",
    storage="single",
    merge="tsv_m",
    unvalidated=1.0,
    # coarser than the official 0.1 to 3.0 in steps of 0.1, with the same reach
    coefficients=tuple(round(0.2 * step, 1) for step in range(16)),
    group="later",
)
def tsv_m(multi_task_vector: Vector) -> Vector:
    """The merged matrices themselves; alpha is tuned."""
    return multi_task_vector
