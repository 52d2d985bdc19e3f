"""Saves an unfinished training to disk, so that it can continue after a crash with bit-identical results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from reproduction.artifacts.labels import Damaged, as_metadata, check
from reproduction.training.shuffled_batches import ShuffledBatches
from tallmasks.io.tensor_files import load_state, write_tensors

if TYPE_CHECKING:
    from reproduction.models.families import Model
    from reproduction.training.early_stopping import BestSoFar

PAUSE = 20  # the shortest time between two saves, as a multiple of the time that a save takes
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class TrainingRun:
    """The state of a training between two steps.

    Attributes:
        generator: determines the order of the examples and their augmentation.
        at_once: examples per forward and backward pass; see `Batch.split`.
        drawn: the result of `draws` after the last batch that was used; later batches can already be prepared.
        best: None without validation.
        curve: rows (step, learning rate, loss), one per step.
        is_deterministic: True while nondeterministic operations are forbidden.
    """

    model: Model
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    batches: ShuffledBatches
    at_once: int
    best: BestSoFar | None = None
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    drawn: dict[str, torch.Tensor] = field(default_factory=dict)
    is_deterministic: bool = False

    def draws(self) -> dict[str, torch.Tensor]:
        """The random state that the next batch depends on."""
        return {"generator": self.generator.get_state(), "waiting": self.batches.waiting}

    @property
    def dropout(self) -> torch.Generator:
        """torch's global generator for the model's device, which dropout uses."""
        return _global_generator(self.model.device)

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Copies, on the CPU, of all tensors that the rest of the training depends on."""
        everything = {
            **{name: self._moments(name) for name in _MOMENTS},
            "weights": self.model.flat.detach().to("cpu", copy=True),
            **self.drawn,
            "curve": torch.tensor(self.curve, dtype=torch.float64),
            "dropout": self.dropout.get_state(),
            "at_once": torch.tensor([self.at_once]),
        }
        if self.best and self.best.weights is not None:
            everything |= {"best": self.best.weights, "validations": torch.tensor(self.best.curve, dtype=torch.float64)}
        return everything

    def _moments(self, name: str) -> torch.Tensor:
        """Of all parameters; zeros of those that had no gradient, such as DINOv2's mask token."""
        states = ((parameter, self.optimizer.state[parameter]) for parameter in self.model.parameters())
        return torch.cat([state.get(name, torch.zeros_like(one)).reshape(-1).cpu() for one, state in states])

    def take(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore a `snapshot`."""
        device, fused = self.model.device, self.optimizer.param_groups[0]["fused"]
        sizes = [parameter.numel() for parameter in self.model.parameters()]
        self.curve[:] = [(int(step), rate, loss) for step, rate, loss in tensors["curve"].tolist()]
        self.model.flat.copy_(tensors["weights"])
        pieces = zip(*(tensors[name].split(sizes) for name in _MOMENTS), strict=True)
        for parameter, moments in zip(self.model.parameters(), pieces, strict=True):
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(len(self.curve)), device=device if fused else "cpu"),
                **{n: m.view_as(parameter).to(device, copy=True) for n, m in zip(_MOMENTS, moments, strict=True)},
            }
        self.generator.set_state(tensors["generator"])
        self.batches.waiting = tensors["waiting"]
        self.dropout.set_state(tensors["dropout"])
        self.at_once = min(self.at_once, int(tensors["at_once"]))
        if self.best and "best" in tensors:
            self.best.weights = tensors["best"]
            self.best.curve[:] = [(int(step), score) for step, score in tensors["validations"].tolist()]


def _global_generator(device: torch.device) -> torch.Generator:
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


@dataclass
class TrainingState:
    """The safetensors file of an unfinished training, written in a thread.

    A context manager that waits for the last save when it exits.

    Attributes:
        making: The checkpoint's recipe as metadata (see `reproduction.artifacts.labels.as_metadata`).
        seconds: The shortest time between two saves.
    """

    path: Path
    making: Mapping[str, str]
    seconds: float = 300.0
    clock: Callable[[], float] = time.monotonic
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1), init=False)
    _save: Future[float] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._due = self.clock() + self.seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.wait()

    def save_if_due(self, training: TrainingRun) -> None:
        """Start writing the current state if enough time has passed. Raises the error of the previous save, if any."""
        if self._save and not self._save.done():
            return
        self.wait()
        start = self.clock()
        if start >= self._due:
            self._save = self._thread.submit(self._write, training.snapshot(), start)

    def wait(self) -> None:
        """Wait for the current save and raise its error, if any."""
        if self._save:
            save, self._save = self._save, None
            self._due = max(self.seconds, PAUSE * save.result()) + self.clock()

    def _write(self, state: Mapping[str, torch.Tensor], start: float) -> float:
        write_tensors(self.path, {name: tensor.numpy() for name, tensor in state.items()}, self.making)
        return self.clock() - start

    def unfit(self) -> Damaged | None:
        """The reason why the file cannot be used; None if it can, or if there is none."""
        try:
            label = check(self.path)
        except FileNotFoundError:
            return None
        except Damaged as damaged:
            return damaged
        if as_metadata(label.recipe) != self.making:
            return Damaged(self.path, "belongs to another training")
        return None

    def restore(self, training: TrainingRun) -> None:
        """Continue from the saved state, if there is one. Raises Damaged if it cannot be used."""
        if unfit := self.unfit():
            raise unfit
        if self.path.exists():
            arrays = load_state(self.path)
            training.take({name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()})

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
