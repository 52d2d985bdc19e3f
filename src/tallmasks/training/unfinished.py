"""An unfinished training on disk: after a kill it continues as if it had never stopped.

Its file has the label of the checkpoint: the recipe, and the content of what the training reads.  A damaged state, or
one of another training, is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from tallmasks.store.artifacts import Damaged, as_metadata, check
from tallmasks.store.tensor_files import load_state, write_tensors

if TYPE_CHECKING:
    from tallmasks.models.families import Model
    from tallmasks.training.batches import ShuffledBatches
    from tallmasks.training.early_stopping import BestSoFar

Curve = list[tuple[int, float, float]]


@dataclass
class Underway:
    """A training between two steps, with torch's own generator of the model's device, from which dropout draws.

    Attributes:
        generator: of the order of the examples and of their changes.
        best: the looks at validation data; None without them.
        curve: rows (step, learning rate, loss), one per step.
    """

    model: Model
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    batches: ShuffledBatches
    best: BestSoFar | None = None
    curve: Curve = field(default_factory=list)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that decides how the training continues."""
        moments = {
            name: torch.cat([self.optimizer.state[each][name].reshape(-1) for each in self.model.parameters()])
            for name in ("exp_avg", "exp_avg_sq")
        }
        everything = moments | {
            "weights": self.model.flat,
            "generator": self.generator.get_state(),
            "waiting": self.batches.waiting,
            "curve": torch.tensor(self.curve, dtype=torch.float64),
            "dropout": _global_generator(self.model.device).get_state(),
        }
        if self.best and self.best.weights is not None:
            everything |= {"best": self.best.weights, "looks": torch.tensor(self.best.curve, dtype=torch.float64)}
        return everything

    def take(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from the `tensors` of another training."""
        sizes = [parameter.numel() for parameter in self.model.parameters()]
        self.curve[:] = [(int(step), rate, loss) for step, rate, loss in tensors["curve"].tolist()]
        self.model.flat.copy_(tensors["weights"])
        pieces = zip(tensors["exp_avg"].split(sizes), tensors["exp_avg_sq"].split(sizes), strict=True)
        for parameter, (first, second) in zip(self.model.parameters(), pieces, strict=True):
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(len(self.curve))),
                "exp_avg": first.view_as(parameter).to(self.model.device).clone(),
                "exp_avg_sq": second.view_as(parameter).to(self.model.device).clone(),
            }
        self.generator.set_state(tensors["generator"])
        self.batches.waiting = tensors["waiting"]
        _global_generator(self.model.device).set_state(tensors["dropout"])
        if self.best and "best" in tensors:
            self.best.weights = tensors["best"]
            self.best.curve[:] = [(int(step), score) for step, score in tensors["looks"].tolist()]


def _global_generator(device: torch.device) -> torch.Generator:
    """torch's own generator of a device."""
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


@dataclass
class TrainingState:
    """The safetensors file of an unfinished training.

    Attributes:
        making: The checkpoint's label as metadata (see `tallmasks.store.artifacts.as_metadata`).
        seconds: Between two saves, which a kill may cost.
    """

    path: Path
    making: Mapping[str, str]
    seconds: float = 300.0
    _saved: float = field(default_factory=time.monotonic)

    def save_if_due(self, training: Underway) -> None:
        """Write the state after the last step of the curve, if enough time has passed since the last save."""
        if time.monotonic() - self._saved < self.seconds:
            return
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in training.tensors().items()}
        write_tensors(self.path, arrays, self.making)
        self._saved = time.monotonic()

    def unfit(self) -> Damaged | None:
        """Why the training cannot continue from the file; None if it can, or there is none."""
        try:
            label = check(self.path)
        except FileNotFoundError:
            return None
        except Damaged as damaged:
            return damaged
        making = as_metadata({"recipe": label.recipe, "made_from": label.made_from})
        if any(self.making[key] != value for key, value in making.items()):
            return Damaged(self.path, "is of another training, or of other data")
        return None

    def restore(self, training: Underway) -> None:
        """Continue from the saved state, if there is one.  Raises what `unfit` returns."""
        if unfit := self.unfit():
            raise unfit
        if self.path.exists():
            arrays = load_state(self.path)
            training.take({name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()})

    def remove(self) -> None:
        """Delete the state, once the checkpoint is on disk."""
        self.path.unlink(missing_ok=True)
