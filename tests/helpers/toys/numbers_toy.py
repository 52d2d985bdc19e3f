"""A model family and a task catalogue that the package knows nothing of: a linear layer on eight numbers.

params.yaml names this module as `family` and as `tasks`; all that the workflow needs to know of both is here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import load_state, open_tensors, write_tensors
from tallmasks.vectors.checkpoints.opening import open_checkpoint

FEATURES, CLASSES = 8, 4
NAMES = ("north", "east", "south", "west")


# -- the catalogue --------------------------------------------------------------------------------------------


class Directions:
    """Which of four directions a point lies in, for each task after its own rotation."""

    versioned = True

    def tasks(self, params: Mapping[str, Any]) -> Mapping[str, Task]:
        return {name: Task(name, ("a", "b", "c", "d"), (), "numbers") for name in NAMES}

    def check(self, params: Mapping[str, Any]) -> None:
        pass

    def recipe(self, params: Any, model: Any, task: str, split: str, root: Path) -> ExamplesRecipe:
        return ExamplesRecipe({"task": task, "split": split, "count": {"train": 400}.get(split, 100)})

    def write(self, recipe: Mapping[str, Any], sources: Mapping[str, Path], out: ExamplesFile) -> None:
        draw = np.random.default_rng(zlib.crc32(f"{recipe['task']} {recipe['split']}".encode()))
        numbers = draw.normal(size=(recipe["count"], FEATURES)).astype(np.float32)
        answers = np.argmax(np.roll(numbers, NAMES.index(recipe["task"]), axis=1)[:, :CLASSES], axis=1)
        write_tensors(out.path, {"numbers": numbers, "answers": answers.astype(np.int64)}, out.metadata)

    def missing(self, recipe: Mapping[str, Any]) -> str | None:
        return None


CATALOGUE = Directions()


# -- the family -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """Examples, and batches of them."""

    numbers: Any
    answers: Any

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def weight(self) -> float:
        return len(self)

    def __getitem__(self, some: Any) -> Numbers:
        return Numbers(self.numbers[some], self.answers[some])

    def split(self, size: int) -> list[Numbers]:
        return [self[start : start + size] for start in range(0, len(self), size)]


class LinearModel:
    """A linear layer: satisfies `reproduction.models.families.Model`."""

    trainable = ("bias", "weight")

    def __init__(self, weights: Path) -> None:
        import torch

        state = load_state(weights)
        self.shapes = {name: tuple(state[name].shape) for name in self.trainable}
        self.device = torch.device("cpu")
        self._initial = torch.from_numpy(np.concatenate([state[name].ravel() for name in self.trainable]))
        self._flat = self._initial.clone()
        self._parameters = [torch.nn.Parameter(torch.empty(shape)) for shape in self.shapes.values()]
        self.use(self._flat)

    @property
    def flat(self) -> Any:
        return self._flat

    def use(self, flat: Any) -> Any:
        former, self._flat = self._flat, flat
        pieces = flat.split([parameter.numel() for parameter in self._parameters])
        for parameter, piece in zip(self._parameters, pieces, strict=True):
            parameter.data = piece.view(parameter.shape)
        return former

    def initial(self) -> Any:
        return self._initial

    def parameters(self) -> Any:
        return self._parameters

    def named_arrays(self) -> dict[str, Any]:
        found = zip(self.trainable, self._parameters, strict=True)
        return {name: parameter.detach().numpy().copy() for name, parameter in found}

    def prepare(self, examples: Numbers, changes: Any = None, generator: Any = None) -> Numbers:
        import torch

        return Numbers(torch.from_numpy(np.array(examples.numbers)), torch.from_numpy(np.array(examples.answers)))

    def batches(self, examples: Numbers, batch_size: int) -> Iterator[Numbers]:
        return (self.prepare(some) for some in examples.split(batch_size))

    def train(self, on: bool) -> None:
        pass

    def _scores(self, batch: Numbers) -> Any:
        bias, weight = self._parameters
        return batch.numbers @ weight.T + bias

    def loss(self, batch: Numbers) -> Any:
        import torch

        return torch.nn.functional.cross_entropy(self._scores(batch), batch.answers)

    def count_right(self, batch: Numbers) -> Any:
        return (self._scores(batch).argmax(dim=1) == batch.answers).sum()


class Linear:
    """Satisfies `reproduction.models.families.Family`; its tasks need nothing but their examples."""

    unit = "points"
    imports = ("torch",)
    task_inputs: tuple[Any, ...] = ()
    publishers: Mapping[str, Any] = {}

    def check(self, name: str, spec: Mapping[str, Any]) -> None:
        if spec["architecture"] != "linear":
            raise TallmasksError(f"params.yaml: models.{name}.architecture: expected linear")

    def settings(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def training_settings(self, spec: Mapping[str, Any], task: Task, validates: bool) -> dict[str, Any]:
        return self.settings(spec)

    def initial_state(self, spec: Mapping[str, Any], pretrained: Path) -> dict[str, Any]:
        checkpoint = open_checkpoint(pretrained)
        return {name: checkpoint.float32(name) for name in LinearModel.trainable}

    def parameter_counts(self, spec: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        return CLASSES * (FEATURES + 1), 0

    def layer_of(self, tensor: str) -> tuple[str, str]:
        return "0", tensor

    def load(self, spec: Any, weights: Path, precision: str = "float32", device: Any = None) -> LinearModel:
        return LinearModel(weights)

    def examples(self, path: Path, task_files: Mapping[str, Path]) -> Numbers:
        tensors = open_tensors(path)
        return Numbers(tensors.view("numbers"), tensors.read("answers"))


FAMILY = Linear()
