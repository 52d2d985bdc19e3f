"""PCB: a mean in which the weight of a value grows with its magnitude and its agreement with the other tasks."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import ALPHAS_TO_3, Between, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.competition import Balance, balance_of
from tallmasks.vectors.task_vectors import TaskVector


def balance(task_vectors: Sequence[TaskVector], *, ratio: Annotated[float, Between(1e-6, 1)] = 0.05) -> Balance:
    """Quantiles of the magnitudes and scores of whole vectors."""
    return balance_of(task_vectors, ratio)


@merge("pcb", prepare=balance)
def pcb(vectors: Sequence[Vector], piece: TensorPiece, balance: Balance) -> Vector:
    """sum_t s_t tau_t / sum_t s_t, where s_t is the score, rescaled to 0 at the task's floor and 1 at its top.

    Like the official code (duguodong7/pcb-merging, pcb_ES.py), except that one lambda is tuned for all tasks; the
    official code finds one per task, between 0.8 and 1.3, by an evolutionary search. A negative floor (the tasks
    disagree on more than 1 - ratio of all weights) is set to 0.
    """
    values, share = balance.weighted(vectors)
    return (values * share).sum(axis=0) / np.maximum(share.sum(axis=0), np.float32(1e-12))


merged_row(
    "pcb",
    order=48,
    title="PCB-Merging",
    paper="Du et al. 2024",
    usage=Scaled(ALPHAS_TO_3, unvalidated=1.0),
    group="later",
)
