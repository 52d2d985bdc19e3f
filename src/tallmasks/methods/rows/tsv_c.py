"""TSV-C: each task's matrices truncated to 1/T of their rank."""

from typing import Any

from tallmasks.bundles.codings import Coding, Dense, LowRank
from tallmasks.methods import PerTask, Vector, by_tensor, method, storage_formulas
from tallmasks.methods.rows.parts.arrays_and_tensors import eigenvectors, exact
from tallmasks.methods.rows.parts.singular_vectors import is_matrix


def coding(shape: tuple[int, ...], tasks: int) -> Coding:
    """Rank r / T; not truncated if that is 0."""
    rank = min(shape) // tasks if is_matrix(shape) else 0
    return LowRank(shape, rank) if rank else Dense(shape)


@method(
    name="tsv_c",
    row=140,
    title="TSV-C",
    paper="Gargiulo et al. 2025, TSV-Compress",
    protocol=PerTask(),
    storage=storage_formulas.low_rank,
    group="later",
)
@by_tensor(coding)
def tsv_c(matrix: Vector, coding: LowRank) -> tuple[Any, Any]:
    """The best approximation of rank floor(r / T) of every matrix of tau_t, where r is its smaller dimension. Other
    tensors, and matrices with r < T, are unchanged.

    Like the official code (AntoAndGar/task_singular_vectors), compresses every 2-D tensor, including embeddings. It
    computes a singular value decomposition in float32; here the matrix is projected on the leading eigenvectors of the
    smaller Gram matrix in float64, which is the same but takes less time.
    """
    return factors(exact(matrix), coding.rank)


def factors(matrix: Any, rank: int) -> tuple[Any, Any]:
    """[m, rank] and [rank, n], with the best rank-`rank` approximation as their product."""
    if matrix.shape[0] > matrix.shape[1]:
        left, right = factors(matrix.T, rank)
        return right.T, left.T
    leading = eigenvectors(matrix @ matrix.T)[:, len(matrix) - rank :]
    return leading, leading.T @ matrix
