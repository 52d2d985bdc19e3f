"""Evaluations as JSON artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.artifacts.labels import Damaged, read_json
from tallmasks.evaluation.choice import accuracies

SPLITS = ("validation", "test")
Score = int | float
"""A number of right answers; or, where an answer can be partly right, the sum of the examples' scores in 0 to 1."""


@dataclass(frozen=True)
class Evaluation:
    """What one method scored on a set of tasks.

    Attributes:
        tasks: in the order of all lists here.
        total: examples per split, {split: [tasks]}.
        correct: right answers of the chosen model per split, {split: [tasks]}.
        scaling_coefficient: chosen or fixed; None for a method without one.
        mask_lambda: the chosen lambda of each task; None for a method without masks.
        grid: the values that were tried on validation data, empty where nothing was chosen.
        curve: right answers on validation data for each of them, [tasks][grid].
        further: test scores of the chosen model in other measures, by name [tasks]; None for a task without such.
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

    def __post_init__(self) -> None:
        """Refuse scores that no model can have, with a ValueError: models from outside count by their own code."""
        curves = [("curve", row) for row in zip(*self.curve, strict=True)]
        rows: list[tuple[str, Sequence[Score | None]]] = [*self.correct.items(), *self.further.items(), *curves]
        for name, scores in rows:
            totals = self.total["validation" if name in ("validation", "curve") else "test"]
            optional = name in self.further
            if len(scores) != len(self.tasks) or not all(
                _is_score(score, total) or (optional and score is None)
                for score, total in zip(scores, totals, strict=True)
            ):
                raise ValueError(f"{name}: {list(scores)} of {list(totals)} are no scores of so many examples")

    @property
    def at_grid_ends(self) -> tuple[bool, ...]:
        """Whether a choice is the first or last value of its grid, so that a better one may lie beyond: one value for
        alpha, one of each task for mask lambdas; empty where nothing was chosen."""
        chosen = (self.scaling_coefficient,) if self.mask_lambda is None else self.mask_lambda
        return tuple(value in (self.grid[0], self.grid[-1]) for value in chosen) if len(self.grid) > 1 else ()

    def to_json(self) -> dict[str, Any]:
        """All fields, without an empty `further`, as most tasks have it."""
        everything = {each.name: getattr(self, each.name) for each in fields(self)}
        if not self.further:
            del everything["further"]
        return everything

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
        )

    def in_order(self, tasks: Sequence[str]) -> Evaluation:
        """The same evaluation with its tasks in another order."""
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
        )

    @classmethod
    def joined(cls, single: Sequence[Evaluation]) -> Evaluation:
        """One evaluation of several tasks from evaluations of one task each, with nothing chosen."""
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


def _is_score(score: object, total: object) -> bool:
    return type(score) in (int, float) and type(total) is int and 0 <= score <= total > 0  # type: ignore[operator]


@contextmanager
def _record(path: Path) -> Iterator[dict[str, Any]]:
    """A JSON artifact.  A missing or wrong value raises Damaged."""
    record = read_json(path)
    try:
        yield record
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Damaged(path, f"holds no evaluation of its recipe: {type(error).__name__}: {error}") from None


def read_evaluation(path: Path) -> Evaluation:
    """The evaluation of a method on a set of tasks, or on one task.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is not what was written.
    """
    with _record(path) as record:
        return Evaluation.from_json(record)


def read_origins(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """By task, where its data and an imported checkpoint are from, of some evaluations of one task each."""
    by_task: dict[str, dict[str, Any]] = {}
    for evaluation in map(read_json, paths):
        if "origins" in evaluation:
            by_task.setdefault(evaluation["tasks"][0], {}).update(evaluation["origins"])
    return by_task


def read_thresholds(path: Path) -> dict[int, Evaluation]:
    """Consensus merging's evaluations by threshold k.  Raises as `read_evaluation`."""
    with _record(path) as record:
        return {int(k): Evaluation.from_json(value) for k, value in record["thresholds"].items()}


def read_subset(path: Path) -> list[Evaluation]:
    """Several methods' evaluations on one subset of the tasks.  Raises as `read_evaluation`."""
    with _record(path) as record:
        return [Evaluation.from_json(value) for value in record["evaluations"]]


def read_orders(path: Path) -> tuple[dict[str, tuple[str, ...]], dict[str, float]]:
    """Figure 5's orders of the tasks by name, and the zero-shot accuracies by task.  Raises as `read_evaluation`."""
    with _record(path) as record:
        return {name: tuple(order) for name, order in record["orders"].items()}, record["zeroshot"]
