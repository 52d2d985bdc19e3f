"""Task arithmetic: the sum of the task vectors, scaled."""

from collections.abc import Sequence

from tallmasks.methods import Vector, merge, method
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector


@merge("sum", paper="Ilharco et al. 2023")
def sum_merge(task_vectors: Sequence[TaskVector], out: Vector) -> None:
    """tau_MTL = sum of tau_t."""
    kernels.sum_vectors([vector.flat for vector in task_vectors], out)


@method(
    name="task_arithmetic",
    row=30,
    title="Task arithmetic",
    section="merging",
    paper="Ilharco et al. 2023",
    protocol="scaled",
    storage="single",
    merge="sum",
    k=0,
)
def task_arithmetic(multi_task_vector: Vector) -> Vector:
    """tau_MTL itself; alpha is tuned."""
    return multi_task_vector
