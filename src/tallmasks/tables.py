"""The files of a results folder, from counts of right answers.

Everything here is a function from `Evaluation`s to tables; percent are rounded to 4 decimals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tallmasks import methods
from tallmasks.select import accuracies, normalized, wilson_interval
from tallmasks.storage import storage

SPLITS = ("validation", "test")


@dataclass(frozen=True)
class Evaluation:
    """What one method scored on a set of tasks.

    Attributes:
        method: a name in the registry of methods.
        tasks: the tasks, in the order of all the lists here.
        total: examples per split, {split: [tasks]}.
        correct: right answers of the chosen model per split, {split: [tasks]}.
        scaling_coefficient: the coefficient that was chosen or given, None where there is none.
        mask_lambda: the chosen lambda of each task, None where there is none.
        grid: the values that were tried on validation data, empty where nothing was chosen.
        curve: right answers on validation data for each of them, [tasks][grid].
    """

    method: str
    tasks: tuple[str, ...]
    total: Mapping[str, Sequence[int]]
    correct: Mapping[str, Sequence[int]]
    scaling_coefficient: float | None = None
    mask_lambda: tuple[float, ...] | None = None
    grid: tuple[float, ...] = ()
    curve: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot have been counted or chosen, with a ValueError."""
        rows: list[tuple[str, Sequence[int], Sequence[int]]]
        rows = [(split, self.total[split], self.correct[split]) for split in SPLITS]
        for task, row in enumerate(self.curve):
            rows.append((f"curve {task}", [self.total["validation"][task]] * len(self.grid), row))
        for what, totals, counts in rows:
            if len(counts) != len(totals) or not all(map(_is_count, counts, totals)):
                raise ValueError(f"{what}: {list(counts)} of {list(totals)} are no counts of right answers")
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
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Evaluation:
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
        )

    @classmethod
    def joined(cls, single: Sequence[Evaluation]) -> Evaluation:
        """One evaluation of several tasks from evaluations of one task each, which all had nothing to choose."""
        return cls(
            method=single[0].method,
            tasks=tuple(part.tasks[0] for part in single),
            total={split: [part.total[split][0] for part in single] for split in SPLITS},
            correct={split: [part.correct[split][0] for part in single] for split in SPLITS},
            scaling_coefficient=single[0].scaling_coefficient,
        )

    def accuracy(self, split: str) -> NDArray[np.float64]:
        return accuracies(self.correct[split], self.total[split])


def _is_count(count: object, total: object) -> bool:
    return type(count) is int and type(total) is int and 0 <= count <= total > 0


@dataclass(frozen=True)
class ParameterCounts:
    """P' (trainable) and F (frozen) of a model, in numbers of values (Wang et al. 2024, appendix C)."""

    trainable: int
    frozen: int


def _percent(fraction: float) -> float:
    return round(100 * float(fraction), 4)


def per_task_table(evaluations: Sequence[Evaluation], finetuned: Evaluation) -> pd.DataFrame:
    """One row per method, task and split: accuracies in percent and what was chosen.

    Args:
        evaluations: the rows, of the same tasks in the same order.
        finetuned: the fine-tuned models on those tasks, which accuracies are relative to; also where they are no row.
    """
    rows = []
    for evaluation in evaluations:
        for split in SPLITS:
            accuracy = evaluation.accuracy(split)
            relative = normalized(accuracy, finetuned.accuracy(split), evaluation.tasks)
            for index, task in enumerate(evaluation.tasks):
                rows.append(
                    {
                        "method": evaluation.method,
                        "task": task,
                        "split": split,
                        "accuracy": _percent(accuracy[index]),
                        "normalized_accuracy": _percent(relative[index]),
                        "scaling_coefficient": evaluation.scaling_coefficient,
                        "mask_lambda": None if evaluation.mask_lambda is None else evaluation.mask_lambda[index],
                    }
                )
    return pd.DataFrame(rows)


def interval_table(evaluations: Sequence[Evaluation]) -> pd.DataFrame:
    """One row per method, task and split: counts, accuracy, and its 95 % Wilson interval, all in percent.

    The interval says how far the accuracy on these examples may be from that on all examples of the task.
    """
    rows = []
    for evaluation in evaluations:
        for split in SPLITS:
            correct, total = evaluation.correct[split], evaluation.total[split]
            low, high = wilson_interval(correct, total)
            for index, task in enumerate(evaluation.tasks):
                rows.append(
                    {
                        "method": evaluation.method,
                        "task": task,
                        "split": split,
                        "correct": correct[index],
                        "total": total[index],
                        "accuracy": _percent(correct[index] / total[index]),
                        "accuracy_low": _percent(low[index]),
                        "accuracy_high": _percent(high[index]),
                    }
                )
    return pd.DataFrame(rows)


def summary_table(evaluations: Sequence[Evaluation], finetuned: Evaluation, counts: ParameterCounts) -> pd.DataFrame:
    """One row per method: test accuracy, its normalised mean over the tasks, and storage in 1e9 bits."""
    rows = []
    for evaluation in evaluations:
        method = methods.get(evaluation.method)
        accuracy = evaluation.accuracy("test")
        stored = storage(
            method.storage,
            tasks=len(evaluation.tasks),
            trainable_parameters=counts.trainable,
            frozen_parameters=counts.frozen,
        )
        rows.append(
            {
                "section": method.section,
                "method": evaluation.method,
                "accuracy": _percent(accuracy.mean()),
                "normalized_accuracy": _percent(
                    normalized(accuracy, finetuned.accuracy("test"), evaluation.tasks).mean()
                ),
                "storage_gb": round(stored.gigabits, 4),
            }
        )
    return pd.DataFrame(rows)


def table_for_people(summary: pd.DataFrame, title: str) -> str:
    """The summary laid out as in the paper: percent with one decimal, normalised accuracy in parentheses."""
    lines = [f"# {title}", ""]
    for section, rows in summary.groupby("section", sort=False):
        lines += [f"| {str(section).capitalize()} | Acc. (%) | Bits (Gb) |", "|---|---:|---:|"]
        for row in rows.itertuples():
            method = methods.get(str(row.method))
            size = f"{'>' if method.storage == 'pruned' else ''}{row.storage_gb:.4g}"
            lines.append(f"| {method.title} | {_score(row)} | {size} |")
        lines.append("")
    lines.append("Test accuracy averaged over the tasks, in parentheses relative to the fine-tuned models.")
    return "\n".join(lines) + "\n"


def _score(row: Any) -> str:
    plain = f"{row.accuracy:.1f}"
    return plain if row.method == "fine_tuned" else f"{plain} ({row.normalized_accuracy:.1f})"


def selection_record(evaluations: Sequence[Evaluation], finetuned: Evaluation) -> dict[str, Any]:
    """What was chosen for each method, with the whole validation curve behind it."""
    base = finetuned.accuracy("validation")
    record: dict[str, Any] = {}
    for evaluation in evaluations:
        if not evaluation.grid:
            continue
        accuracy = accuracies(evaluation.curve, evaluation.total["validation"])
        relative = normalized(accuracy, base, evaluation.tasks)
        if evaluation.mask_lambda is None:
            record[evaluation.method] = {
                "scaling_coefficient": evaluation.scaling_coefficient,
                "validation": [
                    {
                        "scaling_coefficient": value,
                        "accuracy": _percent(accuracy[:, index].mean()),
                        "normalized_accuracy": _percent(relative[:, index].mean()),
                    }
                    for index, value in enumerate(evaluation.grid)
                ],
            }
        else:
            record[evaluation.method] = {
                task: {
                    "mask_lambda": evaluation.mask_lambda[row],
                    "validation": [
                        {
                            "mask_lambda": value,
                            "accuracy": _percent(accuracy[row, index]),
                            "normalized_accuracy": _percent(relative[row, index]),
                        }
                        for index, value in enumerate(evaluation.grid)
                    ],
                }
                for row, task in enumerate(evaluation.tasks)
            }
    return record


def agreement_table(profiles: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    """Mask agreement profiles: the fraction of the trainable weights that n tasks' masks hold.

    Args:
        profiles: {method: {n: fraction}}; n is "0".."T", and "merged_zero" for the weights whose multi-task value
            is exactly 0, which no mask can change and which are counted apart.
    """
    rows = [
        {"method": method, "n": n, "fraction": round(fraction, 6)}
        for method, profile in profiles.items()
        for n, fraction in profile.items()
    ]
    return pd.DataFrame(rows, columns=["method", "n", "fraction"])


GAIN_OVER = "task_arithmetic"
"""The row that the gains of `seeds_table` are measured from."""


def seeds_table(summaries: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Mean and sample standard deviation over fine-tuning seeds of every row of the summaries.

    `gain` is a row's accuracy minus task arithmetic's *of the same seed*: its spread is the one that a difference
    between the two has to be held against. Empty where the table has no task arithmetic.
    """
    every = pd.concat([summary.assign(seed=seed) for seed, summary in summaries.items()])
    base = every[every["method"] == GAIN_OVER].set_index("seed")["accuracy"]
    every["gain"] = every["accuracy"] - every["seed"].map(base)
    scores = every.groupby(["section", "method"], sort=False)[["accuracy", "normalized_accuracy", "gain"]]
    mean, spread = scores.mean(), scores.std(ddof=1)
    columns = {
        f"{score}_{name}": values[score] for score in mean.columns for name, values in (("mean", mean), ("std", spread))
    }
    return pd.DataFrame(columns).round(4).assign(seeds=len(summaries)).reset_index()


def seeds_table_for_people(table: pd.DataFrame, title: str) -> str:
    """The table of `seeds_table` with one decimal and the spread behind a plus-minus sign."""
    lines = [f"# {title}", ""]
    for section, rows in table.groupby("section", sort=False):
        lines += [
            f"| {str(section).capitalize()} | Acc. (%) | Normalised (%) | Gain over TA |",
            "|---|---:|---:|---:|",
        ]
        for row in rows.to_dict("records"):
            gain = "" if pd.isna(row["gain_mean"]) else f"{row['gain_mean']:+.1f} ± {row['gain_std']:.1f}"
            lines.append(
                f"| {methods.get(row['method']).title} | {row['accuracy_mean']:.1f} ± {row['accuracy_std']:.1f} "
                f"| {row['normalized_accuracy_mean']:.1f} ± {row['normalized_accuracy_std']:.1f} | {gain} |"
            )
        lines.append("")
    lines += [
        f"Test accuracy averaged over the tasks: mean and sample standard deviation over {table['seeds'].iloc[0]} "
        "fine-tuning seeds. Gain: accuracy minus task arithmetic's of the same seed."
    ]
    return "\n".join(lines) + "\n"
