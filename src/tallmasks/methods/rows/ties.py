"""TIES: trim each task vector, elect a sign per weight, merge the values that agree with it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallmasks.methods import Fraction, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

Elected = tuple[list[np.float32], Any]
"""The smallest magnitude that each task keeps, and the sign to use where tasks cancel each other."""


def trim_and_elect(task_vectors: Sequence[TaskVector], *, keep: Fraction = 0.2) -> Elected:
    """Thresholds that keep the largest fraction `keep` of the model's parameters, and the majority sign."""
    thresholds = [vector.threshold(keep) for vector in task_vectors]
    return thresholds, kernels.majority_sign([vector.flat for vector in task_vectors], thresholds)


@merge("ties_sum", prepare=trim_and_elect, sparsify="keep", combine="disjoint_sum")
def ties_sum(vectors: Sequence[Vector], piece: TensorPiece, elected: Elected) -> Vector:
    """For each weight, the sum of the kept values whose sign is that of the sum over all tasks."""
    return agreeing(vectors, elected, mean=False)


@merge("ties_mean", prepare=trim_and_elect, masked_as="ties_sum", sparsify="keep", combine="disjoint_mean")
def ties_mean(vectors: Sequence[Vector], piece: TensorPiece, elected: Elected) -> Vector:
    """For each weight, the mean of the kept values whose sign is that of the sum over all tasks."""
    return agreeing(vectors, elected, mean=True)


def agreeing(vectors: Sequence[Vector], elected: Elected, *, mean: bool) -> Vector:
    """The sum or mean of the values that have the elected sign, float32 [n]."""
    out = np.empty(vectors[0].size, np.float32)
    kernels.merge_ties(vectors, *elected, out, mean=mean)
    return out


merged_row("ties", order=40, title="TIES", paper="Yadav et al. 2023", merge="ties_mean", usage=Scaled(unvalidated=1.0))
