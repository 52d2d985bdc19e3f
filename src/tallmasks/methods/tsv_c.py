"""TSV-C: each task's own matrices at a T-th of their rank."""

from typing import Any

from tallmasks.methods import Source, Vector, input, method
from tallmasks.methods.parts.arrays_and_tensors import copied, eigenvectors, exact
from tallmasks.store.tensor_files import Layout


@input("tasks", "T, how many tasks there are, int", per="benchmark")
def tasks_of(source: Source, task: int, level: int) -> int:
    """From the set of tasks."""
    return source.count


@method(
    name="tsv_c",
    row=140,
    title="TSV-C",
    section="compression",
    paper="Gargiulo et al. 2025, TSV-Compress",
    protocol="per_task",
    storage="low_rank",
    over="model",
    group="later",
)
def tsv_c(task_vector: Vector, layout: Layout, tasks: int) -> Vector:
    """Of every matrix of tau_t the best approximation of rank floor(r / T), r its smaller dimension; the rest as it is.

    The official code (AntoAndGar/task_singular_vectors) takes every 2-D tensor, embeddings too, as here, and a singular
    value decomposition in float32.  Here it is the projection on the leading eigenvectors of the smaller Gram matrix,
    in float64: the same matrix for less work.
    """
    out = copied(task_vector)
    whole = layout.split(out)
    for name, part in layout.split(task_vector).items():
        if part.ndim == 2:
            whole[name][...] = truncated(exact(part), min(part.shape) // tasks)
    return out


def truncated(matrix: Any, rank: int) -> Any:
    """The best approximation of a rank, [m, n]."""
    if matrix.shape[0] > matrix.shape[1]:
        return truncated(matrix.T, rank).T
    leading = eigenvectors(matrix @ matrix.T)[:, len(matrix) - rank :]
    return leading @ (leading.T @ matrix)
