"""Weight averaging: the mean of the fine-tuned models."""

from tallmasks.methods import Vector, method


@method(
    name="weight_averaging",
    row=20,
    title="Weight averaging",
    section="merging",
    paper="Wortsman et al. 2022",
    protocol="fixed",
    storage="single",
    merge="sum",
    coefficient=lambda tasks: 1 / tasks,
)
def weight_averaging(multi_task_vector: Vector) -> Vector:
    """The sum of the task vectors, at alpha = 1 / T."""
    return multi_task_vector
