"""TIES: trim each task vector, elect a sign per weight, merge the entries that agree."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from tallmasks.methods import Share, Vector, merge, method
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

Elected = tuple[list[np.float32], np.float32]
"""The magnitude from which on each task's weights stay, and the sign where they cancel each other."""


def trim_and_elect(task_vectors: Sequence[TaskVector], *, keep: Share = 0.2) -> Elected:
    """Trim to the largest `keep` of the model's parameters."""
    thresholds = [vector.threshold(keep) for vector in task_vectors]
    return thresholds, kernels.majority_sign([vector.flat for vector in task_vectors], thresholds)


def ties_merge(rows: Sequence[Vector], out: Vector, elected: Elected, *, mean: bool) -> None:
    """The sum or the mean of what agrees with the elected sign."""
    kernels.merge_ties(rows, *elected, out, mean=mean)


merge("ties_sum", paper="Yadav et al. 2023, disjoint sum", look=trim_and_elect)(partial(ties_merge, mean=False))
merge("ties_mean", paper="Yadav et al. 2023, disjoint mean", look=trim_and_elect, masked_as="ties_sum")(
    partial(ties_merge, mean=True)
)


@method(
    name="ties",
    row=40,
    title="TIES",
    section="merging",
    paper="Yadav et al. 2023",
    protocol="scaled",
    storage="single",
    merge="ties_mean",
    unvalidated=1.0,
)
def ties(multi_task_vector: Vector) -> Vector:
    """tau_MTL itself; alpha is tuned."""
    return multi_task_vector
