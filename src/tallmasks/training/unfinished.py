"""An unfinished training on disk: after a kill it goes on as if it had never stopped.

Its file says of itself what the checkpoint will say: the recipe, and the content of what the training reads.  A state
that was damaged, or is another training's, is not gone on from.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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

Curve = list[tuple[int, float, float]]


@dataclass
class TrainingState:
    """One file with everything that decides how a training goes on: weights, optimizer, random numbers, order.

    Attributes:
        path: The safetensors file.
        making: What the checkpoint will say of its making, as metadata (see `tallmasks.store.artifacts.as_metadata`).
        seconds: Of work that a kill may cost: so often the state is saved.
    """

    path: Path
    making: Mapping[str, str]
    seconds: float = 300.0
    _saved: float = field(default_factory=time.monotonic)

    def save_if_due(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        batches: ShuffledBatches,
        curve: Sequence[tuple[int, float, float]],
    ) -> None:
        """Write the state after the last step of the curve, if enough time has passed since it was last written."""
        if time.monotonic() - self._saved < self.seconds:
            return
        moments = {
            name: torch.cat([optimizer.state[parameter][name].reshape(-1) for parameter in model.parameters()])
            for name in ("exp_avg", "exp_avg_sq")
        }
        tensors = {
            "weights": model.flat,
            **moments,
            "generator": generator.get_state(),
            "waiting": batches.waiting,
            "curve": torch.tensor(curve, dtype=torch.float64),
        }
        write_tensors(self.path, {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}, self.making)
        self._saved = time.monotonic()

    def unfit(self) -> Damaged | None:
        """Why the training cannot go on from the state that is there; None if it can, or there is none."""
        try:
            label = check(self.path)
        except FileNotFoundError:
            return None
        except Damaged as damaged:
            return damaged
        said = as_metadata({"recipe": label.recipe, "made_from": label.made_from})
        if any(said[key] != self.making[key] for key in said):
            return Damaged(self.path, "is of another training, or of other data")
        return None

    def restore(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        batches: ShuffledBatches,
    ) -> Curve:
        """Take over a saved state, if there is one; the curve up to it, whose last row says after which step.

        Raises:
            Damaged: it is not to be gone on from; see `unfit`.
        """
        if (unfit := self.unfit()) is not None:
            raise unfit
        if not self.path.exists():
            return []
        tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in load_state(self.path).items()}
        sizes = [parameter.numel() for parameter in model.parameters()]
        curve = [(int(step), rate, loss) for step, rate, loss in tensors["curve"].tolist()]
        model.flat.copy_(tensors["weights"])
        pieces = zip(tensors["exp_avg"].split(sizes), tensors["exp_avg_sq"].split(sizes), strict=True)
        for parameter, (first, second) in zip(model.parameters(), pieces, strict=True):
            optimizer.state[parameter] = {
                "step": torch.tensor(float(len(curve))),
                "exp_avg": first.view_as(parameter).to(model.device).clone(),
                "exp_avg_sq": second.view_as(parameter).to(model.device).clone(),
            }
        generator.set_state(tensors["generator"])
        batches.waiting = tensors["waiting"]
        return curve

    def remove(self) -> None:
        """Delete the state, once what it leads to is safe on disk."""
        self.path.unlink(missing_ok=True)
