"""RegMean: linear layers whose outputs are, over the training data, nearest to those of each task's model."""

from collections.abc import Sequence

import numpy as np

from tallmasks.methods import Fixed, Share, Statistics, TensorPiece, Vector, merge, merged_row
from tallmasks.vectors.task_vectors import TaskVector

RIDGE = 1e-7  # of the trace, which no eigenvalue exceeds: what float32 leaves of a Gram's own zeros


Grams = Sequence[Statistics]


def grams_of_tasks(task_vectors: Sequence[TaskVector], grams: Grams) -> Grams:
    """Those of the tasks, as they are."""
    return grams


@merge("regmean", over="tensors", prepare=grams_of_tasks, statistics="grams")
def regmean(tensors: Vector, piece: TensorPiece, grams: Grams, *, off_diagonal: Share = 1.0) -> Vector:
    """float32 [T, m, n] -> [m, n]: of a linear layer (sum_t tau_t G_t) (sum_t G_t)^-1, G_t = X_t^T X_t / n of what
    enters it, with its off-diagonals times `off_diagonal`; of any other tensor the mean.

    The same holds of the weights theta_t.  As the code of MergeLM (yule-BUAA/MergeLM, merging_methods.py; 1.0 is its
    `off_diagonal`, FusionBench takes 0.95), which inverts the sum in float32, and fails or gives noise where it is
    singular.  Here it is solved in float64, and directions that next to nothing of any task's data has stay at the
    mean: a ridge towards it.
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


merged_row("regmean", row=24, title="RegMean", paper="Jin et al. 2023", protocol=Fixed(1.0), group="later")
