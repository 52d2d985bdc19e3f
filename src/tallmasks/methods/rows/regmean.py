"""RegMean: linear layers with outputs as close as possible to those of each task's model on its training data."""

from collections.abc import Sequence

import numpy as np

from tallmasks.methods import Fixed, Share, Statistics, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.merges import GRAMS
from tallmasks.vectors.task_vectors import TaskVector

RIDGE = 1e-7  # relative to the trace, which bounds all eigenvalues: about the float32 error of a Gram matrix's zeros


Grams = Sequence[Statistics]


def grams_of_tasks(task_vectors: Sequence[TaskVector], grams: Grams) -> Grams:
    return grams


@merge("regmean", over="tensors", prepare=grams_of_tasks, statistics=GRAMS)
def regmean(tensors: Vector, piece: TensorPiece, grams: Grams, *, off_diagonal: Share = 1.0) -> Vector:
    """float32 [T, m, n] -> [m, n]: for linear layers (sum_t tau_t G_t) (sum_t G_t)^-1, where G_t = X_t^T X_t / n of the
    layer's inputs with off-diagonals times `off_diagonal`; for all other tensors the mean.

    Equivalent to the same formula on the weights theta_t. MergeLM (yule-BUAA/MergeLM, merging_methods.py; its
    `off_diagonal` is 1.0, FusionBench's 0.95) inverts the sum in float32, which fails or returns noise if the sum is
    singular. Here the equations are solved in float64 with a ridge towards the mean, so that directions that hardly
    occur in the data stay at the mean.
    """
    mean = tensors.mean(axis=0)
    if piece.name not in grams[0]:
        return mean
    total = np.zeros((mean.shape[1],) * 2)
    right = np.zeros(mean.shape)
    for tensor, one in zip(tensors, grams, strict=True):
        gram = one[piece.name].astype(np.float64)
        diagonal = gram.diagonal().copy()
        gram *= off_diagonal
        np.fill_diagonal(gram, diagonal)
        total += gram
        right += (tensor - mean) @ gram
    if not (trace := total.trace()):
        return mean
    total[np.diag_indices_from(total)] += RIDGE * trace
    return mean + np.linalg.solve(total, right.T).T.astype(np.float32)


merged_row("regmean", order=24, title="RegMean", paper="Jin et al. 2023", usage=Fixed(1.0), group="later")
