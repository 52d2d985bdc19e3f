"""Evaluations and the JSON artifacts that contain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.artifacts.labels import read_json
from reproduction.evaluation.choice import accuracies

SPLITS = ("validation", "test")
Score = int | float
"""The number of correct answers or, for tasks with partial credit, the sum of the examples' scores in [0, 1]."""


@dataclass(frozen=True)
class Evaluation:
    """One method's scores on a set of tasks. All lists are in the order of ``tasks``.

    Attributes:
        total: numbers of examples, {split: [tasks]}.
        correct: correct answers of the chosen model, {split: [tasks]}.
        scaling_coefficient: chosen or fixed; None for a method without one.
        mask_lambda: chosen, [tasks]; None for a method without masks.
        grid: the values tried on validation data; empty if nothing was chosen.
        curve: correct answers on validation data for each value, [tasks][grid].
        further: other test scores of the chosen model by name, [tasks]; None for a task without that score.
        coded_bytes: the bytes of each task's streams in a bundle, [tasks], for a method that has them.
    """

    method: str
    tasks: tuple[str, ...]
    total: Mapping[str, Sequence[int]]
    correct: Mapping[str, Sequence[Score]]
    scaling_coefficient: float | None = None
    mask_lambda: tuple[float, ...] | None = None
    grid: tuple[float, ...] = ()
    curve: tuple[tuple[Score, ...], ...] = ()
    further: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    coded_bytes: tuple[int, ...] = ()

    @property
    def at_grid_ends(self) -> tuple[bool, ...]:
        """Whether alpha, or each task's mask lambda, is the first or last value of the grid; empty without a grid."""
        chosen = (self.scaling_coefficient,) if self.mask_lambda is None else self.mask_lambda
        return tuple(value in (self.grid[0], self.grid[-1]) for value in chosen) if len(self.grid) > 1 else ()

    def to_json(self) -> dict[str, Any]:
        everything = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in everything.items() if value or name not in ("further", "coded_bytes")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Evaluation:
        lambdas = value["mask_lambda"]
        return cls(
            method=value["method"],
            tasks=tuple(value["tasks"]),
            total=value["total"],
            correct=value["correct"],
            scaling_coefficient=value["scaling_coefficient"],
            mask_lambda=None if lambdas is None else tuple(lambdas),
            grid=tuple(value["grid"]),
            curve=tuple(map(tuple, value["curve"])),
            further=value.get("further", {}),
            coded_bytes=tuple(value.get("coded_bytes", ())),
        )

    def in_order(self, tasks: Sequence[str]) -> Evaluation:
        order = [self.tasks.index(task) for task in tasks]

        def sorted_rows(rows: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(rows[i] for i in order) if rows else ()

        return replace(
            self,
            tasks=tuple(tasks),
            total={split: sorted_rows(counts) for split, counts in self.total.items()},
            correct={split: sorted_rows(counts) for split, counts in self.correct.items()},
            mask_lambda=None if self.mask_lambda is None else sorted_rows(self.mask_lambda),
            curve=sorted_rows(self.curve),
            further={name: sorted_rows(sums) for name, sums in self.further.items()},
            coded_bytes=sorted_rows(self.coded_bytes),
        )

    @classmethod
    def joined(cls, single: Sequence[Evaluation]) -> Evaluation:
        """Combine evaluations of one task each, without chosen values, into one."""
        names = dict.fromkeys(name for part in single for name in part.further)
        return cls(
            method=single[0].method,
            tasks=tuple(part.tasks[0] for part in single),
            total={split: [part.total[split][0] for part in single] for split in SPLITS},
            correct={split: [part.correct[split][0] for part in single] for split in SPLITS},
            scaling_coefficient=single[0].scaling_coefficient,
            further={name: [part.further.get(name, [None])[0] for part in single] for name in names},
        )

    def accuracy(self, split: str) -> NDArray[np.float64]:
        return accuracies(self.correct[split], self.total[split])


def read_evaluation(path: Path) -> Evaluation:
    """Read one evaluation. Raises FileNotFoundError, or Damaged if the file was changed."""
    return Evaluation.from_json(read_json(path))


def read_joined(paths: Iterable[Path]) -> Evaluation:
    """Read evaluations of one task each, by one method, as one evaluation. Raises like `read_evaluation`."""
    return Evaluation.joined([read_evaluation(path) for path in paths])


def read_origins(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """The origin of each task's data and imported checkpoint, by task, from evaluations of one task each."""
    by_task: dict[str, dict[str, Any]] = {}
    for evaluation in map(read_json, paths):
        if "origins" in evaluation:
            by_task.setdefault(evaluation["tasks"][0], {}).update(evaluation["origins"])
    return by_task


def read_evaluations(path: Path) -> list[Evaluation]:
    """Read the evaluations of several methods. Raises like `read_evaluation`."""
    return [Evaluation.from_json(value) for value in read_json(path)["evaluations"]]
