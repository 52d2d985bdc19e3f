"""Task arithmetic: the sum of the task vectors, scaled."""

from collections.abc import Sequence

from tallmasks.methods import Vector, merge, method


@merge("sum", paper="Ilharco et al. 2023")
def sum_merge(rows: Sequence[Vector], out: Vector) -> None:
    """tau_MTL = sum of tau_t, added task by task in float32."""
    out[:] = rows[0]
    for row in rows[1:]:
        out += row


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
