"""Made-up statistics of tasks' data, by tensor: Gram matrices of inputs, squared gradients, and what is learned from a
network with a known best update: every task's own weights at a multiple of its task vector."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.merges import GRAMS, LEARNED, Loss, Statistic
from tallmasks.vectors.task_vectors import TaskVector


def inputs(layout: Layout, task: int, rows: int = 40) -> dict[str, np.ndarray]:
    """Inputs of each matrix's layer, float64 [n, k]; all rows share a common part."""
    draw = np.random.default_rng([task, rows])
    widths = {name: shape[1] for name, shape in zip(layout.names, layout.shapes, strict=True) if len(shape) == 2}
    return {name: draw.normal(size=(rows, width)) + draw.normal(size=width) for name, width in widths.items()}


def made_up(statistic: Statistic, layout: Layout, task: int) -> dict[str, np.ndarray]:
    """A task's statistic, float32 by tensor."""
    if statistic is GRAMS:
        return {name: (x.T @ x / len(x)).astype(np.float32) for name, x in inputs(layout, task).items()}
    draw = np.random.default_rng([task, 1])
    sizes = zip(layout.names, layout.shapes, strict=True)
    return {name: (10.0**-task * draw.normal(size=shape) ** 4).astype(np.float32) for name, shape in sizes}


class QuadraticNetwork:
    """Satisfies `tallmasks.methods.Network`; two choices, the more certain the nearer the update is to the task's goal.

    The goal of a task is ``wanted[task]`` times its task vector, where that is not 0.
    """

    def __init__(self, task_vectors: Sequence[TaskVector], wanted: Sequence[float] | None = None) -> None:
        self.task_vectors, self.layout = task_vectors, task_vectors[0].layout
        self.wanted = wanted or [0.5] * len(task_vectors)
        self.generator = torch.Generator().manual_seed(0)

    def to_device(self, flat: Any) -> torch.Tensor:
        return torch.from_numpy(np.array(flat))

    def value(self, update: torch.Tensor, task: int, size: int, loss: Loss) -> torch.Tensor:
        goal = self.wanted[task] * self.to_device(self.task_vectors[task].flat)
        distance = ((update - goal) * (goal != 0)).square().sum() / goal.square().sum()
        logits = torch.stack([torch.zeros(()), 3 - distance]).expand(size, 2)
        return loss(logits.log_softmax(dim=1))

    def gradient(self, update: torch.Tensor, task: int, size: int, loss: Loss) -> torch.Tensor:
        moved = update.clone().requires_grad_()
        return torch.autograd.grad(self.value(moved, task, size, loss), moved)[0]

    def report(self, step: int, steps: int) -> None:
        pass


def learned(name: str, layout: Layout, tasks: Sequence[int]) -> dict[str, np.ndarray]:
    """The result of two learning steps of a merge, from made-up task vectors."""
    flats = [np.random.default_rng([task, 2]).normal(size=layout.size).astype(np.float32) for task in tasks]
    vectors = [TaskVector(flat, layout, {}) for flat in flats]
    return dict(methods.get_merge(f"{name}:steps=2").learned(QuadraticNetwork(vectors)))


def for_merge(name: str, layout: Layout, tasks: Sequence[int]) -> list[dict[str, np.ndarray]]:
    """The statistics that a merge needs of the tasks; empty if none."""
    statistic = methods.get_merge(name).statistics
    if statistic is LEARNED:
        return [learned(name, layout, tasks)]
    return [made_up(statistic, layout, task) for task in tasks] if statistic else []
