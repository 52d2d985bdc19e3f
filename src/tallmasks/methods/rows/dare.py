"""DARE: weights dropped at random and the others enlarged, before they are added up."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import Between, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.seeded_draws import dropped, task_keys
from tallmasks.vectors.task_vectors import TaskVector

Rate = Annotated[float, Between(0, 0.999)]
Seed = Annotated[int, Between(0, 2**32 - 1)]


def keys_of_tasks(task_vectors: Sequence[TaskVector], *, seed: Seed = 0) -> list[bytes]:
    """What each task's draws are keyed by."""
    return task_keys(task_vectors, seed)


@merge("dare", prepare=keys_of_tasks)
def dare(vectors: Sequence[Vector], piece: TensorPiece, keys: list[bytes], *, drop: Rate = 0.5) -> Vector:
    """The sum over the tasks of tau_t with each weight 0 with the probability `drop`, else divided by 1 - drop.

    As the official code (yule-BUAA/MergeLM, mask_weights_utils), but for the generator: there the bits come from
    torch's global generator; here each belongs to seed, task, tensor and position.
    """
    total = np.zeros(vectors[0].size, np.float32)
    for vector, key in zip(vectors, keys, strict=True):
        total += dropped(vector, key, piece.name, piece.start, drop)
    return total


merged_row("dare", row=34, title="DARE + TA", paper="Yu et al. 2024", group="later")
