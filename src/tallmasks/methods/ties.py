"""TIES: trim each task vector, elect a sign per weight, merge the entries that agree."""

from collections.abc import Sequence
from functools import partial

from tallmasks.methods import Share, Vector, merge, method
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector


def ties_merge(task_vectors: Sequence[TaskVector], out: Vector, *, mean: bool, keep: Share = 0.2) -> None:
    """Trim to the largest `keep` of the model's parameters, elect, and take the sum or the mean of what agrees."""
    flats = [vector.flat for vector in task_vectors]
    thresholds = [vector.threshold(keep) for vector in task_vectors]
    kernels.merge_ties(flats, thresholds, out, mean=mean)


merge("ties_sum", paper="Yadav et al. 2023, disjoint sum")(partial(ties_merge, mean=False))
merge("ties_mean", paper="Yadav et al. 2023, disjoint mean")(partial(ties_merge, mean=True))


@method(
    name="ties",
    row=40,
    title="TIES",
    section="merging",
    paper="Yadav et al. 2023",
    protocol="scaled",
    storage="single",
    merge="ties_mean",
)
def ties(multi_task_vector: Vector) -> Vector:
    """tau_MTL itself; alpha is tuned."""
    return multi_task_vector
