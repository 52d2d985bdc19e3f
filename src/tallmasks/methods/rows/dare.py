"""DARE: drops random weights and rescales the others before summing."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import Between, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.seeded_draws import dropped, task_keys
from tallmasks.vectors.task_vectors import TaskVector

Rate = Annotated[float, Between(0, 0.999)]
Seed = Annotated[int, Between(0, 2**32 - 1)]


def keys_of_tasks(task_vectors: Sequence[TaskVector], *, seed: Seed = 0) -> list[bytes]:
    """The keys of each task's random draws."""
    return task_keys(task_vectors, seed)


@merge("dare", prepare=keys_of_tasks, sparsify="drop", combine="sum")
def dare(vectors: Sequence[Vector], piece: TensorPiece, keys: list[bytes], *, drop: Rate = 0.5) -> Vector:
    """The sum of the tau_t after setting each weight to 0 with probability `drop` and dividing the others by 1 - drop.

    Like the official code (yule-BUAA/MergeLM, mask_weights_utils), except that random numbers follow from the seed, the
    task, the tensor and the position, not from torch's global generator.
    """
    total = np.zeros(vectors[0].size, np.float32)
    for vector, key in zip(vectors, keys, strict=True):
        total += dropped(vector, key, piece.name, piece.start, drop)
    return total


merged_row("dare", order=34, title="DARE + TA", paper="Yu et al. 2024", group="later")
