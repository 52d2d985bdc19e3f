"""TSV-C: each task's own matrices at a T-th of their rank."""

from typing import Any

from tallmasks.bundles.codings import Coding, LowRank, Whole
from tallmasks.methods import PerTask, Source, Vector, bits, by_tensor, input, method
from tallmasks.methods.rows.parts.arrays_and_tensors import eigenvectors, exact
from tallmasks.methods.rows.parts.singular_vectors import is_matrix


@input("tasks", "T, how many tasks there are, int", per="benchmark")
def tasks_of(source: Source, task: int, lambda_index: int) -> int:
    """From the set of tasks."""
    return source.count


def coding(shape: tuple[int, ...], tasks: int) -> Coding:
    """A T-th of a matrix' rank; whole where that is none."""
    rank = min(shape) // tasks if is_matrix(shape) else 0
    return LowRank(shape, rank) if rank else Whole(shape)


@method(
    name="tsv_c",
    row=140,
    title="TSV-C",
    paper="Gargiulo et al. 2025, TSV-Compress",
    protocol=PerTask(),
    storage=bits.low_rank,
    group="later",
)
@by_tensor(coding)
def tsv_c(matrix: Vector, coding: LowRank) -> tuple[Any, Any]:
    """Of every matrix of tau_t the best approximation of rank floor(r / T), r its smaller dimension; the rest, and what
    r < T leaves no rank to, as it is.

    The official code (AntoAndGar/task_singular_vectors) takes every 2-D tensor, embeddings too, as here, and a singular
    value decomposition in float32.  Here it is the projection on the leading eigenvectors of the smaller Gram matrix,
    in float64: the same matrix for less work.
    """
    return factors(exact(matrix), coding.rank)


def factors(matrix: Any, rank: int) -> tuple[Any, Any]:
    """[m, rank] and [rank, n], whose product is the best approximation of a rank."""
    if matrix.shape[0] > matrix.shape[1]:
        left, right = factors(matrix.T, rank)
        return right.T, left.T
    leading = eigenvectors(matrix @ matrix.T)[:, len(matrix) - rank :]
    return leading, leading.T @ matrix
