"""DARE: weights dropped at random and the others enlarged, before they are added up."""

from collections.abc import Sequence
from typing import Annotated

from tallmasks.methods import Between, Place, Vector, merge, method
from tallmasks.methods.rows.parts.seeded_draws import dropped, task_keys
from tallmasks.vectors.task_vectors import TaskVector

Rate = Annotated[float, Between(0, 0.999)]
Seed = Annotated[int, Between(0, 2**32 - 1)]


def keys_of_tasks(task_vectors: Sequence[TaskVector], *, seed: Seed = 0) -> list[bytes]:
    """What each task's draws are keyed by."""
    return task_keys(task_vectors, seed)


@merge("dare", paper="Yu et al. 2024, DARE", over="places", look=keys_of_tasks)
def dare_merge(rows: Sequence[Vector], out: Vector, place: Place, keys: list[bytes], *, drop: Rate = 0.5) -> None:
    """The sum over the tasks of tau_t with each weight 0 with the probability `drop`, else divided by 1 - drop.

    As the official code (yule-BUAA/MergeLM, mask_weights_utils), but for the generator: there the bits come from
    torch's global one, here each belongs to the seed, the task, the tensor and the position.
    """
    out[:] = 0
    for row, key in zip(rows, keys, strict=True):
        out += dropped(row, key, place.name, place.start, drop)


@method(
    name="dare",
    row=34,
    title="DARE + TA",
    section="merging",
    paper="Yu et al. 2024",
    protocol="scaled",
    storage="single",
    merge="dare",
    group="later",
)
def dare(multi_task_vector: Vector) -> Vector:
    """The sum of what is left; alpha is tuned."""
    return multi_task_vector
