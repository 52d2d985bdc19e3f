"""The files of a results folder, from counts of right answers.

Everything here is a function from `Evaluation`s to tables; percent are rounded to 4 decimals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tallmasks import methods
from tallmasks.evaluation.choice import accuracies, normalized, wilson_interval
from tallmasks.evaluation.records import SPLITS, Evaluation
from tallmasks.methods import Method
from tallmasks.methods.bits import Shapes
from tallmasks.models.families import Family, Spec
from tallmasks.vectors.checkpoints.opening import open_checkpoint


@dataclass(frozen=True)
class ParameterCounts:
    """P' (trainable) and F (frozen) of a model, in numbers of values (Wang et al. 2024, appendix C); and the shapes of
    the trainable tensors, which the bits of some methods depend on."""

    trainable: int
    frozen: int
    shapes: Shapes = field(default_factory=dict)

    @classmethod
    def of(cls, kin: Family, spec: Spec, pretrained: Path) -> ParameterCounts:
        """From a pretrained file of a family's model."""
        initial = kin.initial_state(spec, pretrained)
        counts = kin.parameter_counts(spec, open_checkpoint(pretrained).shapes)
        return cls(*counts, {name: values.shape for name, values in initial.items()})

    def stored(self, method: Method, tasks: int) -> float:
        """What a method stores for T tasks, in 1e9 bits, rounded to 4 decimals."""
        return round(method.stored(tasks, self.trainable, self.frozen, self.shapes).gigabits, 4)


def _percent(fraction: float) -> float:
    return round(100 * float(fraction), 4)


def per_task_table(evaluations: Sequence[Evaluation], finetuned: Evaluation) -> pd.DataFrame:
    """One row per method, task and split: accuracies in percent and what was chosen; and where tasks have further
    scores (a freely written answer's exact match and F1), these on test data.

    Args:
        evaluations: the rows, of the same tasks in the same order.
        finetuned: the fine-tuned models on those tasks, which accuracies are relative to; also where they are no row.
    """
    rows = []
    names = dict.fromkeys(name for evaluation in evaluations for name in evaluation.further)
    for evaluation in evaluations:
        for split in SPLITS:
            further = evaluation.further if split == "test" else {}
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
                    | {name: _share(further.get(name), index, evaluation.total[split]) for name in names}
                )
    return pd.DataFrame(rows)


def _share(sums: Sequence[float | None] | None, task: int, totals: Sequence[int]) -> float | None:
    """A task's mean score in percent; None of one without it."""
    score = None if sums is None else sums[task]
    return None if score is None else _percent(score / totals[task])


def interval_table(evaluations: Sequence[Evaluation]) -> pd.DataFrame:
    """One row per method, task and split: counts, accuracy, and its 95 % Wilson interval, all in percent.

    The interval says how far the accuracy on these examples may be from that on all examples of the task.  It is one of
    a share of right answers: where a task's score is no count there is none.
    """
    rows = []
    for evaluation in evaluations:
        for split in SPLITS:
            correct, total = evaluation.correct[split], evaluation.total[split]
            low, high = wilson_interval(correct, total)
            for index, task in enumerate(evaluation.tasks):
                counted = isinstance(correct[index], int)
                rows.append(
                    {
                        "method": evaluation.method,
                        "task": task,
                        "split": split,
                        "correct": correct[index],
                        "total": total[index],
                        "accuracy": _percent(correct[index] / total[index]),
                        "accuracy_low": _percent(low[index]) if counted else None,
                        "accuracy_high": _percent(high[index]) if counted else None,
                    }
                )
    table = pd.DataFrame(rows)
    return table.assign(correct=pd.Series([row["correct"] for row in rows], dtype=object))  # counts stay whole numbers


def summary_table(evaluations: Sequence[Evaluation], finetuned: Evaluation, counts: ParameterCounts) -> pd.DataFrame:
    """One row per method: test accuracy, its normalised mean over the tasks, and storage in 1e9 bits."""
    rows = []
    for evaluation in evaluations:
        method = methods.get(evaluation.method)
        accuracy = evaluation.accuracy("test")
        rows.append(
            {
                "section": method.section,
                "method": evaluation.method,
                "accuracy": _percent(accuracy.mean()),
                "normalized_accuracy": _percent(
                    normalized(accuracy, finetuned.accuracy("test"), evaluation.tasks).mean()
                ),
                "storage_gb": counts.stored(method, len(evaluation.tasks)),
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
            size = f"{'>' if method.stores_more else ''}{row.storage_gb:.4g}"
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
