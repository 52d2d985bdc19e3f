"""A network to learn from with a known best update: every task's own weights at a multiple of its task vector."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tallmasks.methods.merges import Loss
from tallmasks.vectors.task_vectors import TaskVector


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
