"""Early stopping: keeps the weights with the best validation score, and stops a training that no longer improves."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from reproduction.models import cuda
from reproduction.models.families import Examples, Model


@dataclass
class BestSoFar:
    """Validation scores of a training, and its best weights.

    Attributes:
        every: steps between two validations.
        patience: the number of validations without improvement after which the training ends; None for never.
        curve: rows (step, score); scores are from 0 to 1.
        weights: the first with the best score, float32 [P'], on the CPU.
    """

    examples: Examples
    every: int
    patience: int | None
    curve: list[tuple[int, float]] = field(default_factory=list)
    weights: torch.Tensor | None = None

    @property
    def step(self) -> int:
        return max(self.curve, key=lambda row: row[1])[0]

    @property
    def exhausted(self) -> bool:
        """True if the last ``patience`` validations did not improve on the best score."""
        later = sum(step > self.step for step, _ in self.curve)
        return self.patience is not None and later >= self.patience

    def look(self, model: Model, step: int, batch_size: int) -> float:
        """Validate after a step and return the score. Keeps the weights if it is the best. Uses no random numbers."""
        model.train(False)
        right = torch.zeros((), dtype=torch.int64, device=model.device)
        with torch.inference_mode(), cuda.reporting_out_of_memory(f"a validation pass of {batch_size} examples"):
            for batch in model.batches(self.examples, batch_size):
                right = right + model.count_right(batch)
        model.train(True)
        self.curve.append((step, right.item() / len(self.examples)))
        if self.step == step:
            self.weights = model.flat.detach().to("cpu", copy=True)
        return self.curve[-1][1]
