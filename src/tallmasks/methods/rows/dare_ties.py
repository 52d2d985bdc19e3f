"""DARE + TIES: weights dropped at random and the others enlarged, then trimmed, elected and merged."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import Between, Place, Share, Vector, merge, method
from tallmasks.methods.rows.parts.seeded_draws import dropped, dropped_vector, task_keys
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

Rate = Annotated[float, Between(0, 0.999)]
Seed = Annotated[int, Between(0, 2**32 - 1)]
Elected = tuple[list[bytes], list[np.float32], np.float32]


def drop_and_elect(
    task_vectors: Sequence[TaskVector], *, drop: Rate = 0.5, seed: Seed = 0, keep: Share = 0.2
) -> Elected:
    """What draws are keyed by, and TIES' thresholds and majority sign of what they leave."""
    keys = task_keys(task_vectors, seed)
    left = [dropped_vector(vector, key, drop) for vector, key in zip(task_vectors, keys, strict=True)]
    thresholds = [vector.threshold(keep) for vector in left]
    return keys, thresholds, kernels.majority_sign([vector.flat for vector in left], thresholds)


@merge("dare_ties", paper="Yu et al. 2024, DARE + TIES", over="places", look=drop_and_elect)
def dare_ties_merge(rows: Sequence[Vector], out: Vector, place: Place, elected: Elected, *, drop: Rate = 0.5) -> None:
    """The disjoint mean of what DARE leaves of each task, as the official code does (yule-BUAA/MergeLM): TIES' share
    `keep` is of all parameters, the dropped ones among them.  It is counted as for TIES here, which can be one weight
    fewer than there."""
    keys, thresholds, majority = elected
    left = [dropped(row, key, place.name, place.start, drop) for row, key in zip(rows, keys, strict=True)]
    kernels.merge_ties(left, thresholds, majority, out, mean=True)


@method(
    name="dare_ties",
    row=44,
    title="DARE + TIES",
    section="merging",
    paper="Yu et al. 2024",
    protocol="scaled",
    storage="single",
    merge="dare_ties",
    unvalidated=1.0,
    group="later",
)
def dare_ties(multi_task_vector: Vector) -> Vector:
    """The merged vector itself; alpha is tuned."""
    return multi_task_vector
