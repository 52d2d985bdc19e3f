"""PCB: a weighted mean, with weights that grow with a value's size and with its agreement with the other tasks."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import Between, Vector, merge, method
from tallmasks.methods.rows.parts.competition import Balance, balance_of
from tallmasks.vectors.task_vectors import TaskVector


def balance(task_vectors: Sequence[TaskVector], *, ratio: Annotated[float, Between(1e-6, 1)] = 0.05) -> Balance:
    """What a slice has to know of whole vectors: quantiles of magnitudes, and of scores."""
    return balance_of(task_vectors, ratio)


@merge("pcb", paper="Du et al. 2024", look=balance)
def pcb_merge(rows: Sequence[Vector], out: Vector, known: Balance) -> None:
    """sum_t s_t tau_t / sum_t s_t, with s_t the score above the task's floor, as a share of what its top has.

    As the official code (duguodong7/pcb-merging, pcb_ES.py) with one lambda for all tasks, which is tuned; there an
    evolutionary search gives each task its own from 0.8 to 1.3.  A floor below 0, where tasks disagree on more than
    1 - ratio of all weights, is 0 here.
    """
    values, share = known.weighed(rows)
    out[:] = (values * share).sum(axis=0) / np.maximum(share.sum(axis=0), np.float32(1e-12))


@method(
    name="pcb",
    row=48,
    title="PCB-Merging",
    section="merging",
    paper="Du et al. 2024",
    protocol="scaled",
    storage="single",
    merge="pcb",
    unvalidated=1.0,
    coefficients=(0.8, 0.9, 1.0, 1.1, 1.2, 1.3),
    group="later",
)
def pcb(multi_task_vector: Vector) -> Vector:
    """The weighted mean; alpha is tuned."""
    return multi_task_vector
