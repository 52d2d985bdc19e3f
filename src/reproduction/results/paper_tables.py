"""The paper's tables: our numbers next to the paper's, as data and as layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from reproduction.results import reference
from reproduction.results.paper import TABLES
from reproduction.results.reference import dtd_excess, paper_rows, paper_table
from reproduction.results.tables import mark_explained, marked, rows_by_section, score_text
from reproduction.results.typesetting import Cell, TableLayout, byte_unit
from reproduction.tasks.titles import benchmark_title
from tallmasks import methods


def side_by_side(
    name: str, model: str, ours: Mapping[str, pd.DataFrame], tasks: Mapping[str, Sequence[str]]
) -> pd.DataFrame:
    """Our numbers next to the paper's, which are empty if the paper has none.

    ``name``: a key of ``TABLES``; ``model``: a `published_name`; ``ours``: table.csv or controlled.csv by benchmark.
    """
    table, parts = TABLES[name], []
    numbers = ["accuracy", "normalized_accuracy", *(["formula_gbit"] if table.storage else [])]
    shown = {"section", "method", "finetuning", *numbers, "scaling_coefficient", "at_grid_end"}
    for benchmark, part in ours.items():
        if table.methods:
            part = part.set_index("method")
            part = part.loc[[method for method in table.methods if method in part.index]].reset_index()
        part = part[[column for column in part if column in shown]]
        keys = [key for key in ("method", "finetuning") if key in part]
        paper = paper_rows(model, tasks[benchmark], table.numbers)
        paper = pd.DataFrame(columns=keys) if paper is None else paper
        paper = paper.reindex(columns=[*keys, *numbers]).rename(columns={n: f"{n}_paper" for n in numbers})
        joined = part.merge(paper, on=keys, how="left")
        joined.insert(0, "benchmark", benchmark)
        parts.append(joined)
    return pd.concat(parts, ignore_index=True)


def laid_out(
    name: str, model: str, data: pd.DataFrame, tasks: Mapping[str, Sequence[str]], published: str
) -> TableLayout:
    """Lay out the table of `side_by_side` as in the paper, with normalised accuracy in parentheses.

    Sizes next to the paper's are in its unit, Gb; others as in `byte_unit`.
    """
    table, compared = TABLES[name], bool(data["accuracy_paper"].notna().any())
    unit, factor = ("Gb", 1.0) if compared or not table.storage else byte_unit(data["formula_gbit"])
    heads = {"accuracy": "Acc. (%)", "formula_gbit": "Bits (Gb)" if compared else f"Size ({unit})"}
    numbers = [(key, suffix) for key in heads if key in data for suffix in ("", "_paper")[: 1 + compared]]
    of_finetuning = "finetuning" in data
    if of_finetuning:  # table 1: a section per method, a row per way of fine-tuning
        data = data.assign(
            section=[methods.get(method).title for method in data["method"]], title=data["finetuning"].str.capitalize()
        )

    def cells(row: Mapping[str, Any]) -> list[str]:
        texts = [_score(row, suffix) if key == "accuracy" else _size(row, suffix, factor) for key, suffix in numbers]
        return [marked(texts[0], row), *texts[1:]]

    sections: dict[str, dict[str, list[Cell]]] = {}
    for _, part in data.groupby("benchmark", sort=False):
        for section, rows in rows_by_section(part, cells, bold=None if of_finetuning else 1):
            for title, *row in rows:
                sections.setdefault(section, {}).setdefault(title.text, [title]).extend(row)
    benchmarks = list(dict.fromkeys(data["benchmark"]))
    return TableLayout(
        f"{table.title}: {model}",
        [(benchmark_title(benchmark, len(tasks[benchmark])), len(numbers)) for benchmark in benchmarks],
        ["", *[(suffix and "paper") or heads[key] for key, suffix in numbers] * len(benchmarks)],
        [(section, list(rows.values())) for section, rows in sections.items()],
        "Test accuracy averaged over the tasks, in parentheses relative to the fine-tuned models. "
        + _note(table.numbers, model, tasks, published, compared)
        + mark_explained(data),
    )


def _note(
    numbers: Sequence[int], model: str, tasks: Mapping[str, Sequence[str]], published: str, compared: bool
) -> str:
    if not compared:
        in_paper = any(published in set(paper_table(number)["model"]) for number in reference.TABLES)
        return f"The paper has no {'such numbers' if in_paper else 'results'} for {model}."
    shown = [str(number) for number in numbers if published in set(paper_table(number)["model"])]
    note = f"Paper: Wang et al. 2024, table{'s' * (len(shown) > 1)} {', '.join(shown)}."
    points = [f"{excess:.1f}" for part in tasks.values() if (excess := dtd_excess(published, part))]
    if points:
        note += (
            f" The paper's fine-tuned and compressed models are about {', '.join(points)} points better than can be "
            "reached on these tasks, because its DTD model had seen its test images; it was replaced later."
        )
    return note


def _score(row: Mapping[str, Any], suffix: str) -> str:
    accuracy, relative = row[f"accuracy{suffix}"], row[f"normalized_accuracy{suffix}"]
    if pd.isna(accuracy):
        return "–"
    return f"{accuracy:.1f}" if pd.isna(relative) else score_text(accuracy, relative, row["method"])


def _size(row: Mapping[str, Any], suffix: str, factor: float) -> str:
    size = factor * row[f"formula_gbit{suffix}"]
    return "–" if pd.isna(size) else f"{'>' if methods.get(row['method']).stores_more else ''}{size:.1f}"
