"""Early stopping: the weights that score best on validation data, and the end of a training that gets no better."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from tallmasks.models.families import Examples, Model


@dataclass
class BestSoFar:
    """What a training has learned of its validation data.

    Attributes:
        examples: the validation examples.
        every: how many steps lie between two looks at them.
        patience: so many looks in a row without a better score end the training; None for no end.
        batch_size: examples per forward pass.
        curve: rows (step, score), the score a fraction of the examples.
        weights: float32 [P'], on the CPU: those of the best look, the first of equal ones.
    """

    examples: Examples
    every: int
    patience: int | None
    batch_size: int
    curve: list[tuple[int, float]] = field(default_factory=list)
    weights: torch.Tensor | None = None

    @property
    def step(self) -> int:
        """The step whose weights are the best."""
        return max(self.curve, key=lambda row: row[1])[0]

    @property
    def exhausted(self) -> bool:
        """Whether the last `patience` looks were all no better than one before them."""
        behind = sum(step > self.step for step, _ in self.curve)
        return self.patience is not None and behind >= self.patience

    def look(self, model: Model, step: int) -> float:
        """Score the model after a step, and keep its weights if they are the best; the score.  Dropout is off for it,
        and no random number is drawn."""
        model.train(False)
        right = torch.zeros((), dtype=torch.int64, device=model.device)
        with torch.inference_mode():
            for batch in model.batches(self.examples, self.batch_size):
                right = right + model.count_right(batch)
        model.train(True)
        self.curve.append((step, right.item() / len(self.examples)))
        if self.step == step:
            self.weights = model.flat.detach().to("cpu", copy=True)
        return self.curve[-1][1]
