"""The paper's tables: ours beside the paper's numbers, as data and laid out for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from tallmasks import methods
from tallmasks.results.paper import TABLES
from tallmasks.results.reference import dtd_excess, in_paper, paper_rows, paper_table
from tallmasks.results.typesetting import Cell, TableLayout
from tallmasks.tasks.titles import benchmark_title


def side_by_side(
    name: str, model: str, ours: Mapping[str, pd.DataFrame], tasks: Mapping[str, Sequence[str]]
) -> pd.DataFrame:
    """Our numbers of each benchmark beside the paper's, which are empty where the paper has none.

    Args:
        name: a key of ``TABLES``.
        model: a `tallmasks.results.paper.published_name`.
        ours: the results file of each benchmark: table.csv, or controlled.csv for "controlled".
        tasks: of each benchmark.
    """
    table, parts = TABLES[name], []
    for benchmark, found in ours.items():
        part = found
        if table.methods:
            known = [method for method in table.methods if method in set(found["method"])]
            part = found.set_index("method").loc[known].reset_index()
        keys = [key for key in ("method", "finetuning") if key in part]
        numbers = ["accuracy", "normalized_accuracy", *(["storage_gb"] if table.storage else [])]
        unasked = ["stored_gb"] if table.storage else ["stored_gb", "storage_gb"]
        part = part.drop(columns=unasked, errors="ignore")
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
    """The table of `side_by_side` as people read it: one decimal, normalised accuracy in parentheses, as in the paper.

    The best of a section is bold, apart from the fine-tuned models, which the others are measured by.
    """
    table, compared = TABLES[name], bool(data["accuracy_paper"].notna().any())
    known = [number for number in table.numbers if published in set(paper_table(number)["model"])]
    numbers = [(key, suffix) for key in _HEADS if key in data for suffix in ("", "_paper")[: 1 + compared]]
    rows: dict[tuple[str, str], list[Cell]] = {}
    benchmarks = list(dict.fromkeys(data["benchmark"]))
    for benchmark in benchmarks:
        part = data[data["benchmark"] == benchmark]
        records = [{str(key): value for key, value in row.items()} for row in part.to_dict("records")]
        for row, best in zip(records, _best(records), strict=True):
            cells = [Cell(_FORMATS[key](row, suffix), best and key + suffix == "accuracy") for key, suffix in numbers]
            rows.setdefault((_section(row), _name(row)), [Cell(_name(row))]).extend(cells)
    sections: dict[str, list[list[Cell]]] = {}
    for (section, _), line in rows.items():
        sections.setdefault(section, []).append(line)
    return TableLayout(
        f"{table.title}: {model}",
        [(benchmark_title(benchmark, len(tasks[benchmark])), len(numbers)) for benchmark in benchmarks],
        ["", *[(suffix and "paper") or _HEADS[key] for key, suffix in numbers] * len(benchmarks)],
        list(sections.items()),
        "Test accuracy averaged over the tasks, in parentheses relative to the fine-tuned models. "
        + (
            f"Beside it the paper's numbers (Wang et al. 2024, {_table_names(known)})." + _leak(published, tasks)
            if compared
            else f"The paper has {'none of these numbers for' if in_paper(published) else 'no'} {model}: these numbers "
            "have nothing of the paper's to be compared with."
        ),
    )


def _table_names(numbers: Sequence[int]) -> str:
    return f"table{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _leak(model: str, tasks: Mapping[str, Sequence[str]]) -> str:
    """What to know of the paper's numbers whose DTD model had seen its test images."""
    points = [f"{excess:.1f}" for part in tasks.values() if (excess := dtd_excess(model, part))]
    if not points:
        return ""
    return (
        f" The paper's fine-tuned and compressed models lie about {', '.join(points)} points above what can be reached "
        "on these tasks, since its DTD model had seen its test images; it was replaced afterwards."
    )


def _best(rows: Sequence[Mapping[str, Any]]) -> Iterator[bool]:
    """Whether each row has the highest accuracy of its section, the fine-tuned models apart; none where ways of
    fine-tuning are compared."""
    if "finetuning" in rows[0]:
        yield from (False for _ in rows)
        return
    for row in rows:
        rivals = [r["accuracy"] for r in rows if _section(r) == _section(row) and r["method"] != "fine_tuned"]
        yield row["method"] != "fine_tuned" and row["accuracy"] == max(rivals)


def _section(row: Mapping[str, Any]) -> str:
    return methods.get(row["method"]).title if "finetuning" in row else str(row.get("section", "")).capitalize()


def _name(row: Mapping[str, Any]) -> str:
    return str(row["finetuning"]).capitalize() if "finetuning" in row else methods.get(row["method"]).title


def _score(row: Mapping[str, Any], suffix: str) -> str:
    accuracy, relative = row[f"accuracy{suffix}"], row[f"normalized_accuracy{suffix}"]
    if pd.isna(accuracy):
        return "–"
    alone = pd.isna(relative) or row["method"] == "fine_tuned"
    return f"{accuracy:.1f}" if alone else f"{accuracy:.1f} ({relative:.1f})"


def _size(row: Mapping[str, Any], suffix: str) -> str:
    stored = row[f"storage_gb{suffix}"]
    if pd.isna(stored):
        return "–"
    more = ">" if methods.get(row["method"]).stores_more else ""
    return f"{more}{stored:.1f}" if stored >= 1 else f"{more}{stored:.3g}"


_HEADS = {"accuracy": "Acc. (%)", "storage_gb": "Bits (Gb)"}
_FORMATS = {"accuracy": _score, "storage_gb": _size}
