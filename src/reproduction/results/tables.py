"""Tables of a results folder, from evaluations.  Scores are in percent, rounded to 4 decimals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from reproduction.evaluation.choice import accuracies, normalized, wilson_interval
from reproduction.evaluation.records import SPLITS, Evaluation
from reproduction.models.families import Family, ModelParams
from reproduction.results.typesetting import Cell, TableLayout, byte_unit, markdown
from tallmasks import methods
from tallmasks.masks.consensus import AgreementProfile
from tallmasks.methods import Method
from tallmasks.methods.storage_formulas import Shapes
from tallmasks.vectors.checkpoints.opening import open_checkpoint


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of trainable (P') and frozen (F) parameters (Wang et al. 2024, appendix C), and the shapes of the
    trainable tensors by name."""

    trainable: int
    frozen: int
    shapes: Shapes = field(default_factory=dict)

    @classmethod
    def of(cls, model_family: Family, spec: ModelParams, pretrained: Path) -> ParameterCounts:
        initial = model_family.initial_state(spec, pretrained)
        counts = model_family.parameter_counts(spec, open_checkpoint(pretrained).shapes)
        return cls(*counts, {name: values.shape for name, values in initial.items()})

    def stored(self, method: Method, tasks: int) -> float:
        """Storage in 1e9 bits by formula, rounded to 4 decimals."""
        return round(method.stored_size(tasks, self.trainable, self.frozen, self.shapes).gigabits, 4)

    def stored_by(self, evaluation: Evaluation, digits: int = 4) -> float:
        """As :meth:`stored`, of an evaluated method; with its streams, where these were measured."""
        method, streams = methods.get(evaluation.method), 8 * sum(evaluation.coded_bytes) / 1e9
        bits = method.stored_size(len(evaluation.tasks), self.trainable, self.frozen, self.shapes)
        return round(bits.gigabits + streams, digits)


def percent(fraction: float) -> float:
    return round(100 * float(fraction), 4)


def mean_scores(evaluation: Evaluation, finetuned: Evaluation, split: str = "test") -> dict[str, float]:
    """Accuracy and normalised accuracy in percent, averaged over the tasks.

    ``finetuned`` has the same tasks, in any order.
    """
    accuracy = evaluation.accuracy(split)
    relative = normalized(accuracy, finetuned.in_order(evaluation.tasks).accuracy(split), evaluation.tasks)
    return {"accuracy": percent(accuracy.mean()), "normalized_accuracy": percent(relative.mean())}


def per_task_table(evaluations: Sequence[Evaluation], finetuned: Evaluation) -> pd.DataFrame:
    """One row per method, task and split: accuracies in percent, chosen values, and other test scores if there are any.

    All evaluations have the same tasks in the same order.
    """
    rows = []
    names = dict.fromkeys(name for evaluation in evaluations for name in evaluation.further)
    for evaluation, split in product(evaluations, SPLITS):
        accuracy = evaluation.accuracy(split)
        relative = normalized(accuracy, finetuned.accuracy(split), evaluation.tasks)
        for index, task in enumerate(evaluation.tasks):
            row = {
                "method": evaluation.method,
                "task": task,
                "split": split,
                "accuracy": percent(accuracy[index]),
                "normalized_accuracy": percent(relative[index]),
                "scaling_coefficient": evaluation.scaling_coefficient,
                "mask_lambda": None if evaluation.mask_lambda is None else evaluation.mask_lambda[index],
            }
            for name in names:
                score = evaluation.further[name][index] if split == "test" and name in evaluation.further else None
                row[name] = None if score is None else percent(score / evaluation.total[split][index])
            rows.append(row)
    return pd.DataFrame(rows)


def interval_table(evaluations: Sequence[Evaluation]) -> pd.DataFrame:
    """One row per method, task and split: counts, and accuracy in percent with its 95 % Wilson interval.

    Scores with partial credit have no interval, because they are not counts.
    """
    rows = []
    for evaluation, split in product(evaluations, SPLITS):
        counts = evaluation.correct[split], evaluation.total[split]
        for task, correct, total, low, high in zip(evaluation.tasks, *counts, *wilson_interval(*counts), strict=True):
            counted = isinstance(correct, int)
            rows.append(
                {
                    "method": evaluation.method,
                    "task": task,
                    "split": split,
                    "correct": correct,
                    "total": total,
                    "accuracy": percent(correct / total),
                    "accuracy_low": percent(low) if counted else None,
                    "accuracy_high": percent(high) if counted else None,
                }
            )
    table = pd.DataFrame(rows)
    return table.assign(correct=pd.Series([row["correct"] for row in rows], dtype=object))  # counts stay integers


def summary_table(
    evaluations: Sequence[Evaluation],
    finetuned: Evaluation,
    counts: ParameterCounts,
    stored: Mapping[str, float | None] = {},
) -> pd.DataFrame:
    """One row per method: test accuracies in percent, storage in 1e9 bits, by formula and in files, and how many chosen
    values are at an end of their grid.

    ``stored``: sizes of the files by method, in 1e9 bits.
    """
    table = pd.DataFrame(
        {
            "section": methods.get(evaluation.method).section,
            "method": evaluation.method,
            **mean_scores(evaluation, finetuned),
            "formula_gbit": counts.stored_by(evaluation),
            "file_gbit": stored.get(evaluation.method),
            "at_grid_end": sum(evaluation.at_grid_ends),
        }
        for evaluation in evaluations
    )
    return table.astype({"file_gbit": float})


def headline_numbers(summary: pd.DataFrame) -> dict[str, dict[Any, float]]:
    """The numbers that `dvc metrics` and `dvc exp show` print, in percent, for the methods in the summary."""
    rows = summary.set_index("method")
    best = rows.drop("fine_tuned", errors="ignore").groupby("section")["normalized_accuracy"].max()
    plain = rows["accuracy"].filter(["zeroshot", "fine_tuned"])
    relative = rows["normalized_accuracy"].filter(["task_arithmetic"]).to_dict() | best.add_prefix("best_").to_dict()
    return {"accuracy": plain.to_dict(), "normalized_accuracy": relative}


def selection_record(evaluations: Sequence[Evaluation], finetuned: Evaluation) -> dict[str, Any]:
    """The chosen values of each method that has a grid, with the validation curves."""
    record: dict[str, Any] = {}
    for evaluation in filter(lambda each: each.grid, evaluations):
        accuracy = accuracies(evaluation.curve, evaluation.total["validation"])
        relative = normalized(accuracy, finetuned.accuracy("validation"), evaluation.tasks)
        grid, ends = evaluation.grid, evaluation.at_grid_ends or (False,) * len(evaluation.tasks)
        if evaluation.mask_lambda is None:
            means = [[column.mean() for column in values.T] for values in (accuracy, relative)]
            record[evaluation.method] = _choice(
                methods.get(evaluation.method).tuned or "scaling_coefficient",
                evaluation.scaling_coefficient,
                ends[0],
                grid,
                *means,
            )
        else:
            record[evaluation.method] = {
                task: _choice("mask_lambda", chosen, at_end, grid, *curves)
                for task, chosen, at_end, *curves in zip(
                    evaluation.tasks, evaluation.mask_lambda, ends, accuracy, relative, strict=True
                )
            }
    return record


def _choice(
    name: str, chosen: float | None, at_end: bool, grid: Sequence[float], *curves: Sequence[float]
) -> dict[str, Any]:
    """``curves``: accuracy and normalised accuracy over the grid, fractions."""
    points = [
        {name: value, "accuracy": percent(score), "normalized_accuracy": percent(ratio)}
        for value, score, ratio in zip(grid, *curves, strict=True)
    ]
    return {name: chosen, "at_grid_end": at_end, "validation": points}


def agreement_table(profiles: Mapping[str, AgreementProfile]) -> pd.DataFrame:
    """For n = 0..T, the fraction of trainable weights that exactly n masks select, and the part of it with merged value
    exactly 0."""
    rows = [
        (method, n, round(fraction, 6), round(zero, 6))
        for method, profile in profiles.items()
        for n, (fraction, zero) in enumerate(zip(profile.fractions, profile.merged_zero, strict=True))
    ]
    return pd.DataFrame(rows, columns=["method", "n", "fraction", "merged_zero"])


def seeds_table(summaries: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Mean and sample standard deviation of every row over the fine-tuning seeds.

    ``summaries``: `summary_table` by seed.  `gain` is the accuracy minus that of task arithmetic with the same seed;
    `at_grid_end` is summed over the seeds.
    """
    table = pd.concat([summary.assign(seed=seed) for seed, summary in summaries.items()])
    base = table[table["method"] == "task_arithmetic"].set_index("seed")["accuracy"]
    table["gain"] = table["accuracy"] - table["seed"].map(base)
    scores = table.groupby(["section", "method"], sort=False)[["accuracy", "normalized_accuracy", "gain"]]
    mean, spread = scores.mean(), scores.std(ddof=1)
    columns = {
        f"{score}_{name}": values[score] for score in mean.columns for name, values in (("mean", mean), ("std", spread))
    }
    ends = table.groupby(["section", "method"], sort=False)["at_grid_end"].sum()
    return pd.DataFrame(columns).round(4).assign(seeds=len(summaries), at_grid_end=ends).reset_index()


def rows_by_section(
    table: pd.DataFrame, cells: Callable[[dict[str, Any]], Sequence[str]], bold: int | None = None
) -> list[tuple[str, list[list[Cell]]]]:
    """The sections of a layout.  A row is the method's title, or `title` if the table has that column, then ``cells``.

    ``table``: has the columns `section` and `method`.  ``bold``: index of the bold cell in the row with the best
    `accuracy` of each section; the fine-tuned models do not count.
    """
    sections = []
    for section, part in table.groupby("section", sort=False):
        best = part[part["method"] != "fine_tuned"]["accuracy"].max() if bold else None
        rows = []
        for record in part.to_dict("records"):
            row = {str(key): value for key, value in record.items()}
            is_best = row["method"] != "fine_tuned" and row.get("accuracy") == best
            texts = [row.get("title") or methods.get(row["method"]).title, *cells(row)]
            rows.append([Cell(text, is_best and index == bold) for index, text in enumerate(texts)])
        sections.append((str(section).capitalize(), rows))
    return sections


def score_text(accuracy: float, relative: float, method: str) -> str:
    return f"{accuracy:.1f}" if method == "fine_tuned" else f"{accuracy:.1f} ({relative:.1f})"


MARK = "†"
"""Marks a chosen value at an end of its grid."""


def marked(text: str, row: Mapping[str, Any]) -> str:
    return f"{text} {MARK}" if row.get("at_grid_end") else text


def mark_explained(table: pd.DataFrame) -> str:
    """The footnote for marks; empty if no row has one."""
    if "at_grid_end" not in table or not table["at_grid_end"].any():
        return ""
    return f" {MARK} A chosen value is the smallest or largest that was tried; a better one may lie beyond."


def table_for_people(summary: pd.DataFrame, title: str) -> str:
    """A `summary_table` as Markdown; sizes as in `byte_unit`."""
    unit, factor = byte_unit(summary["formula_gbit"])

    def cells(row: Mapping[str, Any]) -> list[str]:
        more = ">" if methods.get(row["method"]).stores_more else ""
        score = score_text(row["accuracy"], row["normalized_accuracy"], row["method"])
        return [marked(score, row), f"{more}{factor * row['formula_gbit']:.1f}"]

    note = "Test accuracy averaged over the tasks, in parentheses relative to the fine-tuned models."
    note += mark_explained(summary)
    layout = TableLayout(title, [], ["", "Acc. (%)", f"Size ({unit})"], rows_by_section(summary, cells), note)
    return markdown(layout, table_per_section=True)


def seeds_table_for_people(table: pd.DataFrame, title: str) -> str:
    """A `seeds_table` as Markdown."""

    def cells(row: Mapping[str, Any]) -> list[str]:
        scores = [
            f"{row[f'{name}_mean']:.1f} ± {row[f'{name}_std']:.1f}" for name in ("accuracy", "normalized_accuracy")
        ]
        gain = "" if pd.isna(row["gain_mean"]) else f"{row['gain_mean']:+.1f} ± {row['gain_std']:.1f}"
        return [marked(scores[0], row), scores[1], gain]

    note = (
        f"Test accuracy averaged over the tasks: mean and sample standard deviation over {table['seeds'].iloc[0]} "
        "fine-tuning seeds. Gain: accuracy minus task arithmetic's of the same seed."
    ) + mark_explained(table)
    columns = ["", "Acc. (%)", "Normalised (%)", "Gain over TA"]
    return markdown(TableLayout(title, [], columns, rows_by_section(table, cells), note), table_per_section=True)
