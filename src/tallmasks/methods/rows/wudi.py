"""WUDI: a merged matrix that acts like each task's matrix on that task's inputs."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import Between, Fixed, Share, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.layers_in_blocks import is_linear_layer, with_inputs_first
from tallmasks.vectors.task_vectors import TaskVector

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual constants


def transposed(task_vectors: Sequence[TaskVector]) -> set[str]:
    return with_inputs_first(task_vectors[0].shapes)


@merge("wudi", over="tensors", prepare=transposed)
def wudi(
    tensors: Vector,
    piece: TensorPiece,
    prepared: set[str],
    *,
    steps: Annotated[int, Between(0, 100_000)] = 300,
    learning_rate: Share = 1e-5,
) -> Vector:
    """float32 [T, m, n] -> [m, n]: from the sum S of the D_t, Adam on sum_t |(M - D_t) D_t^T|^2 / |D_t|^2.

    Like the official code (nathanielyvo/WUDI-Merging, vit/wudi_main.py), merges only linear layers of attention and
    MLP, where the rows of D_t span the inputs of task t; all other tensors stay pretrained (0). Here these layers are
    recognised by name and shape: matrices other than embeddings, heads and projections; those in ``prepared`` have the
    inputs first and are transposed. With
    G = sum_t D_t^T D_t / |D_t|^2 and C = sum_t (S - D_t) D_t^T D_t / |D_t|^2 the gradient at S + X is 2 (X G + C), so
    each step needs one matrix product for any T.
    """
    if piece.name in prepared:
        tensors = tensors.swapaxes(1, 2)
    total = tensors.sum(axis=0)
    if not is_linear_layer(piece.name, total.shape):
        return np.zeros_like(total)
    gram, start = np.zeros((total.shape[1],) * 2, np.float32), np.zeros_like(total)
    for matrix in tensors:
        if norm := np.float32(np.square(matrix).sum()):
            own = matrix.T @ matrix / norm
            gram, start = gram + own, start + (total - matrix) @ own
    change, first, second = (np.zeros_like(total) for _ in range(3))
    for step in range(1, steps + 1):
        gradient = 2 * (change @ gram + start)
        first += (1 - FIRST) * (gradient - first)
        second += (1 - SECOND) * (np.square(gradient) - second)
        scale = np.sqrt(second) / np.float32(np.sqrt(1 - SECOND**step)) + np.float32(EPSILON)
        change -= np.float32(learning_rate / (1 - FIRST**step)) * first / scale
    return (total + change).T if piece.name in prepared else total + change


merged_row("wudi", order=68, title="WUDI", paper="Cheng et al. 2025", usage=Fixed(1.0), group="later")
