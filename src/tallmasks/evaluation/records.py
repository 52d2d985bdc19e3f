"""Evaluations and what follows from them, as JSON artifacts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.evaluation.choice import accuracies
from tallmasks.store.artifacts import Damaged, read_json

SPLITS = ("validation", "test")
Score = int | float
"""A number of right answers; or the sum of the examples' scores, each in 0 to 1, of a task whose score is no count."""


@dataclass(frozen=True)
class Evaluation:
    """What one method scored on a set of tasks.

    Attributes:
        method: a name in the registry of methods.
        tasks: the tasks, in the order of all the lists here.
        total: examples per split, {split: [tasks]}.
        correct: right answers of the chosen model per split, {split: [tasks]}: whole numbers where they are counted,
            others where a task is scored otherwise.
        scaling_coefficient: the coefficient that was chosen or given, None where there is none.
        mask_lambda: the chosen lambda of each task, None where there is none.
        grid: the values that were tried on validation data, empty where nothing was chosen.
        curve: right answers on validation data for each of them, [tasks][grid].
        further: by name, what the chosen model scores otherwise on test data, sums of 0 to 1 for each example [tasks];
            None of a task that has no such score.
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
        """Refuse what cannot have been counted or chosen, with a ValueError."""
        rows: list[tuple[str, Sequence[int], Sequence[Score]]]
        rows = [(split, self.total[split], self.correct[split]) for split in SPLITS]
        for task, row in enumerate(self.curve):
            rows.append((f"curve {task}", [self.total["validation"][task]] * len(self.grid), row))
        for what, totals, counts in rows:
            if len(counts) != len(totals) or not all(map(_is_score, counts, totals)):
                raise ValueError(f"{what}: {list(counts)} of {list(totals)} are no scores of so many examples")
        for name, sums in self.further.items():
            pairs = zip(sums, self.total["test"], strict=True)
            if not all(score is None or _is_score(score, total) for score, total in pairs):
                raise ValueError(
                    f"{name}: {list(sums)} of {list(self.total['test'])} are no scores of so many examples"
                )
        chosen = [*(self.mask_lambda or ()), *([] if self.scaling_coefficient is None else [self.scaling_coefficient])]
        for number in (*self.grid, *chosen):
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise ValueError(f"{number!r} is no finite number")
        if self.grid and not set(chosen) <= set(self.grid):
            raise ValueError(f"{chosen} was not chosen from the grid {list(self.grid)}")
        lengths = [len(self.total["test"]), len(self.total["validation"]), len(self.mask_lambda or self.tasks)]
        if {*lengths, len(self.curve or self.tasks)} != {len(self.tasks)} or bool(self.grid) != bool(self.curve):
            raise ValueError(f"there is not one of everything for each of {len(self.tasks)} tasks")

    def to_json(self) -> dict[str, Any]:
        """All of it; `further` only where there is something in it, as most tasks have nothing of the kind."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return found if self.further else {name: value for name, value in found.items() if name != "further"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Evaluation:
        value = {"further": {}, **value}
        fields = {name: value[name] for name in cls.__dataclass_fields__}
        return cls(
            **{
                **fields,
                "tasks": tuple(value["tasks"]),
                "mask_lambda": None if value["mask_lambda"] is None else tuple(value["mask_lambda"]),
                "grid": tuple(value["grid"]),
                "curve": tuple(tuple(row) for row in value["curve"]),
            }
        )

    def in_order(self, tasks: Sequence[str]) -> Evaluation:
        """The same evaluation with its tasks in another order."""
        order = [self.tasks.index(task) for task in tasks]

        def sorted_rows(rows: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(rows[i] for i in order) if rows else ()

        return Evaluation(
            method=self.method,
            tasks=tuple(tasks),
            total={split: sorted_rows(counts) for split, counts in self.total.items()},
            correct={split: sorted_rows(counts) for split, counts in self.correct.items()},
            scaling_coefficient=self.scaling_coefficient,
            mask_lambda=None if self.mask_lambda is None else sorted_rows(self.mask_lambda),
            grid=self.grid,
            curve=sorted_rows(self.curve),
            further={name: sorted_rows(sums) for name, sums in self.further.items()},
        )

    @classmethod
    def joined(cls, single: Sequence[Evaluation]) -> Evaluation:
        """One evaluation of several tasks from evaluations of one task each, which all had nothing to choose."""
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
    """A JSON artifact; what is not in it as it should be raises Damaged."""
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


def read_thresholds(path: Path) -> dict[int, Evaluation]:
    """Consensus merging's evaluations by threshold k.  Raises as `read_evaluation`."""
    with _record(path) as record:
        return {int(k): Evaluation.from_json(value) for k, value in record["thresholds"].items()}


def read_dtypes(path: Path) -> dict[str, tuple[Evaluation, int]]:
    """The evaluations of models out of bundles, with the bytes of the files, by the dtype of tau_MTL.  Raises as
    `read_evaluation`."""
    with _record(path) as record:
        by_dtype = ((dtype, record["dtypes"][dtype]) for dtype in record["recipe"]["params"]["dtypes"])
        return {dtype: (Evaluation.from_json(value), value["bytes"]) for dtype, value in by_dtype}


def read_subset(path: Path) -> list[Evaluation]:
    """Several methods' evaluations on one subset of the tasks.  Raises as `read_evaluation`."""
    with _record(path) as record:
        return [Evaluation.from_json(value) for value in record["evaluations"]]


def read_orders(path: Path) -> tuple[dict[str, tuple[str, ...]], dict[str, float]]:
    """Figure 5's orders of the tasks by name, and the zero-shot accuracies by task.  Raises as `read_evaluation`."""
    with _record(path) as record:
        return {name: tuple(order) for name, order in record["orders"].items()}, record["zeroshot"]
