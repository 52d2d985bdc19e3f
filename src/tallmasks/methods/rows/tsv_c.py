"""TSV-C: each task's matrices truncated to 1/T of their rank."""

from typing import Any

from tallmasks.methods import PerTask, Vector, by_tensor, method, storage_formulas
from tallmasks.methods.rows.parts.arrays_and_tensors import eigenvectors, exact
from tallmasks.methods.rows.parts.singular_vectors import is_matrix


@method(
    name="tsv_c",
    order=140,
    title="TSV-C",
    paper="Gargiulo et al. 2025, TSV-Compress",
    usage=PerTask(),
    storage=storage_formulas.low_rank,
    group="later",
)
@by_tensor
def tsv_c(tensor: Vector, tasks: int) -> Any:
    """The best approximation of rank floor(r / T) of every matrix of tau_t, where r is its smaller dimension. Other
    tensors, and matrices with r < T, are unchanged.

    Like the official code (AntoAndGar/task_singular_vectors), compresses every 2-D tensor, including embeddings. It
    computes a singular value decomposition in float32; here the matrix is projected on the leading eigenvectors of the
    smaller Gram matrix in float64, which is the same but takes less time.
    """
    shape = tuple(tensor.shape)
    rank = min(shape) // tasks if is_matrix(shape) else 0
    if not rank:
        return tensor
    left, right = factors(exact(tensor), rank)
    # a tall matrix is computed as its transpose, so that sums have the same order as for a wide one
    return (right.T @ left.T).T if shape[0] > shape[1] else left @ right


def factors(matrix: Any, rank: int) -> tuple[Any, Any]:
    """[m, rank] and [rank, n], with the best rank-`rank` approximation as their product."""
    if matrix.shape[0] > matrix.shape[1]:
        left, right = factors(matrix.T, rank)
        return right.T, left.T
    leading = eigenvectors(matrix @ matrix.T)[:, len(matrix) - rank :]
    return leading, leading.T @ matrix
