"""The pretrained network with unlabelled examples, for merges that learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reproduction.models.families import Examples, WatchedModel
from tallmasks.methods.merges import Loss
from tallmasks.vectors.task_vectors import TaskVector

REPORTS = 20  # progress lines per learned merge


class UnlabelledTasks:
    """A `tallmasks.methods.merges.Network`. ``examples``: one per task, in the order of ``task_vectors``."""

    def __init__(
        self,
        model: WatchedModel,
        examples: Sequence[Examples],
        task_vectors: Sequence[TaskVector],
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._model, self._examples, self._progress = model, examples, progress
        self.task_vectors, self.layout = task_vectors, task_vectors[0].layout
        self._pretrained = model.initial()
        self._weights = torch.empty_like(self._pretrained)
        self._draws = [np.random.default_rng([task, len(examples)]) for task in range(len(examples))]
        self.generator = torch.Generator(model.device).manual_seed(0)

    def to_device(self, flat: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(np.array(flat)).to(self._model.device)

    def gradient(self, update: torch.Tensor, task: int, size: int, loss: Loss) -> torch.Tensor:
        examples = self._examples[task]
        drawn = self._draws[task].choice(len(examples), min(size, len(examples)), replace=False)
        batch = self._model.prepare(examples[np.sort(drawn)])
        before = self._model.use(torch.add(self._pretrained, update, out=self._weights))
        parameters: list[Any] = self._model.parameters()
        value = loss(self._model.choice_log_probabilities(batch))
        gradients = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        self._model.use(before)
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def report(self, step: int, steps: int) -> None:
        if step == steps or step % max(1, steps // REPORTS) == 0:
            self._progress(f"learned {step} of {steps} steps")
