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


def _per_task(**default: Any) -> Any:
    """A field in the order of the tasks: a sequence, or sequences by name."""
    return field(metadata={"per_task": True}, **default)


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
    tasks: tuple[str, ...] = _per_task()
    total: Mapping[str, Sequence[int]] = _per_task()
    correct: Mapping[str, Sequence[Score]] = _per_task()
    scaling_coefficient: float | None = None
    mask_lambda: tuple[float, ...] | None = _per_task(default=None)
    grid: tuple[float, ...] = ()
    curve: tuple[tuple[Score, ...], ...] = _per_task(default=())
    further: Mapping[str, Sequence[float | None]] = _per_task(default_factory=dict)
    coded_bytes: tuple[int, ...] = _per_task(default=())

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
        return cls(**{each.name: _as_tuples(value[each.name]) for each in fields(cls) if each.name in value})

    def in_order(self, tasks: Sequence[str]) -> Evaluation:
        order = [self.tasks.index(task) for task in tasks]

        def sorted_rows(rows: Any) -> Any:
            if isinstance(rows, Mapping):
                return {name: sorted_rows(each) for name, each in rows.items()}
            return tuple(rows[i] for i in order) if rows else rows

        return replace(self, **{name: sorted_rows(getattr(self, name)) for name in PER_TASK})

    @classmethod
    def joined(cls, single: Sequence[Evaluation]) -> Evaluation:
        """Combine evaluations of one task each, without chosen values, into one."""

        def rows_of(parts: Sequence[Any]) -> Any:
            if not isinstance(parts[0], Mapping):
                return tuple(row for part in parts for row in part or ()) or parts[0]
            names = dict.fromkeys(name for part in parts for name in part)
            return {name: [part.get(name, [None])[0] for part in parts] for name in names}

        return replace(single[0], **{name: rows_of([getattr(one, name) for one in single]) for name in PER_TASK})

    def accuracy(self, split: str) -> NDArray[np.float64]:
        return accuracies(self.correct[split], self.total[split])


PER_TASK = [each.name for each in fields(Evaluation) if each.metadata]


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


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
