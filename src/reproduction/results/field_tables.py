"""The table of every method of a benchmark: year, inputs, chosen values, accuracy and storage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pandas as pd

from reproduction.evaluation.choice import mean_interval
from reproduction.evaluation.records import Evaluation
from reproduction.results.tables import (
    ParameterCounts,
    mark_explained,
    marked,
    percent,
    rows_by_section,
    summary_table,
)
from reproduction.results.typesetting import TableLayout, byte_unit
from tallmasks import methods
from tallmasks.methods import Method
from tallmasks.methods.method_usages import Part
from tallmasks.methods.registry import data_needed


def year(method: Method) -> int | None:
    """The year of a method's paper; None without a paper."""
    number = re.search(r"\b(?:19|20)\d\d\b", method.paper)
    return int(number[0]) if number else None


def field_table(
    evaluations: Sequence[Evaluation],
    finetuned: Evaluation,
    counts: ParameterCounts,
    stored: Mapping[str, float | None] = {},
) -> pd.DataFrame:
    """A `summary_table`, sorted by section and year, with more columns.

    The evaluations have the same tasks in the same order.
    """
    rows, summary = [], summary_table(evaluations, finetuned, counts, stored)
    for evaluation, row in zip(evaluations, summary.to_dict("records"), strict=True):
        method = methods.get(evaluation.method)
        low, high = mean_interval(evaluation.correct["test"], evaluation.total["test"])
        rows.append(
            {
                "section": row["section"],
                "year": year(method),
                "method": row["method"],
                "title": method.title,
                "paper": method.paper,
                "needs": data_needed(method),
                "scaling_coefficient": evaluation.scaling_coefficient,
                "mask_lambda": " ".join(map(str, evaluation.mask_lambda or ())),
                "accuracy": row["accuracy"],
                "accuracy_low": percent(low),
                "accuracy_high": percent(high),
                "normalized_accuracy": row["normalized_accuracy"],
                "formula_gbit": row["formula_gbit"],
                "formula_at_least": method.stores_more,
                **row,
            }
        )
    order = {name: index for index, name in enumerate(get_args(Part))}
    rows.sort(key=lambda row: (order[row["section"]], row["year"] or 0, methods.get(row["method"]).order))
    return pd.DataFrame(rows).astype({"year": "Int64"})


def laid_out_field(table: pd.DataFrame, title: str) -> TableLayout:
    """Lay out a `field_table`, with sizes as in `byte_unit`; the best accuracy of each section is bold."""
    files = bool(table["file_gbit"].notna().any())
    unit, factor = byte_unit(table["formula_gbit"])

    def cells(row: Mapping[str, Any]) -> list[str]:
        stored = [_number(factor * row["file_gbit"], ".1f")] if files else []
        return [
            _number(row["year"], "d"),
            row["needs"],
            marked(_chosen(row), row),
            f"{row['accuracy']:.1f}",
            f"{row['accuracy_low']:.1f}–{row['accuracy_high']:.1f}",
            f"{row['normalized_accuracy']:.1f}",
            f"{'>' if row['formula_at_least'] else ''}{factor * row['formula_gbit']:.1f}",
            *stored,
        ]

    heads = ["", "Year", "Needs", "Chosen", "Acc. (%)", "95 %", "Normalised (%)", f"Size ({unit})"]
    return TableLayout(
        title,
        [],
        [*heads, *([f"In files ({unit})"] if files else [])],
        rows_by_section(table, cells, bold=heads.index("Acc. (%)")),
        "Test accuracy averaged over the tasks, its 95 % interval (combined from the tasks' Wilson intervals), and the "
        "accuracy relative to the fine-tuned models. Needs: inputs besides the checkpoints. Chosen: on validation data "
        "or fixed by the method. Size: by formula. In files: exact, with headers and all tensors of the model."
        + mark_explained(table),
    )


def _number(value: Any, shape: str) -> str:
    return "–" if pd.isna(value) else format(value, shape)


def _chosen(row: Mapping[str, Any]) -> str:
    if row["mask_lambda"]:
        values = sorted(map(float, row["mask_lambda"].split()))
        return f"λ {values[0]:g}" if values[0] == values[-1] else f"λ {values[0]:g}–{values[-1]:g}"
    if pd.isna(row["scaling_coefficient"]):
        return "–"
    return f"{methods.get(row['method']).tuned or 'α'} {row['scaling_coefficient']:g}"
