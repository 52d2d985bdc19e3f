"""Write what a report says of a model as a whole: the results that it opens with, parameters, run times, provenance."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from job import Job
from tallmasks.results.typesetting import Cell, TableLayout, html_page
from tallmasks.store.atomic_files import atomic_write_text

MEMORY = re.compile(r"^done in .+, with (\d+) MB of memory$", re.M)
"""What a job that succeeded says last (workflow/runner/job.py)."""


OPENING_STYLE = """<style>
.max-w-lg {max-width: 56rem}
.h-screen.overflow-auto {align-items: flex-start; justify-content: flex-start}
.opening table {display: block; overflow-x: auto; white-space: nowrap}
.opening :is(td, th) {padding: .2rem .7rem}
.opening :is(td, th):not(:first-child) {text-align: right}
.opening tr.section td {text-align: left; font-style: italic}
.opening svg {max-width: 100%; height: auto}
</style>"""
"""For the text of Snakemake's report: its column is too narrow for a table, and a long text begins above the window."""


def run(job: Job) -> None:
    model, params = job.params["model"], job.params["params"]
    pages = {
        "opening": opening(model, Path("results") / model),
        "parameters": parameters(model, params),
        "run_times": html_page(run_times(model, Path("logs"))),
        "provenance": html_page(provenance(model, Path("results") / model)),
    }
    for name, page in pages.items():
        atomic_write_text(job.outputs["folder"] / f"{name}.html", page, read_only=False)


def opening(model: str, folder: Path) -> str:
    """The results that a report opens with: the table of methods, accuracy per task, accuracy against stored bits.

    They are parts of a page, with all that they need.
    """
    page = (folder / "tables" / "methods.html").read_text()
    table = page[page.index("<table>") : page.index("</body>")]
    figures = [(folder / "figures" / f"{name}.svg").read_text() for name in ("radar", "pareto")]
    drawn = [figure[figure.index("<svg") :] for figure in figures]
    return "\n".join([OPENING_STYLE, f'<div class="opening"><h2>{html.escape(model)}</h2>', table, *drawn, "</div>\n"])


def parameters(model: str, params: Mapping[str, Any]) -> str:
    """params.yaml without the models that this report is not about."""
    shown = {**params, "models": {model: params["models"][model]}}
    text = html.escape(yaml.safe_dump(shown, sort_keys=False, default_flow_style=None, width=100))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Parameters</title></head>'
        f'<body style="font-family: sans-serif; margin: 1.5em"><h2>Parameters: {html.escape(model)}</h2>'
        f'<pre style="font-size: 90%">{text}</pre></body></html>\n'
    )


def run_times(model: str, logs: Path) -> TableLayout:
    """Jobs by kind, from Snakemake's benchmark files; data are shared by all models of one catalogue.

    Memory is what each job's log ends with: the job may be a fork of the warm Python, which Snakemake does not measure.
    """
    rows = []
    for path in sorted(logs.glob("*/*/*.benchmark.tsv")):
        folder, kind = path.parts[-3:-1]
        if folder == model or kind == "examples":
            measured = pd.read_csv(path, sep="\t", na_values="-")
            log = path.with_name(path.name.replace(".benchmark.tsv", ".log"))
            peaks = MEMORY.findall(log.read_bytes().decode(errors="replace")) if log.is_file() else []
            rows.append((kind, measured["s"].sum(), float(peaks[-1]) if peaks else math.nan))
    table = pd.DataFrame(rows, columns=["kind", "seconds", "megabytes"])
    by_kind = table.groupby("kind", sort=False).agg(
        jobs=("seconds", "size"), total=("seconds", "sum"), longest=("seconds", "max"), memory=("megabytes", "max")
    )
    lines = [
        [Cell(str(kind)), *_numbers(row)] for kind, row in by_kind.sort_values("total", ascending=False).iterrows()
    ]
    every = pd.Series(
        {"jobs": by_kind["jobs"].sum(), "total": by_kind["total"].sum()}
        | {"longest": by_kind["longest"].max(), "memory": by_kind["memory"].max()}
    )
    return TableLayout(
        f"Run times: {model}",
        [],
        ["", "jobs", "total (s)", "longest (s)", "memory (MB)"],
        [("", [*lines, [Cell("all"), *_numbers(every)]])],
        "Of the last run of every job that this machine has a log of; memory with the libraries that jobs share.",
    )


def _numbers(row: pd.Series) -> list[Cell]:
    memory = "–" if pd.isna(row["memory"]) else f"{row['memory']:.0f}"
    return [Cell(f"{row['jobs']:.0f}"), Cell(f"{row['total']:.1f}"), Cell(f"{row['longest']:.1f}"), Cell(memory)]


def provenance(model: str, folder: Path) -> TableLayout:
    """Every provenance file of a model's results."""
    records = {path: json.loads(path.read_text()) for path in sorted(folder.rglob("*provenance.json"))}
    rows = [[Cell(_what(path, folder)), Cell(record["recipe"]["digest"])] for path, record in records.items()]
    versions = dict.fromkeys(f"{n} {value}" for record in records.values() for n, value in record["versions"].items())
    machines = dict.fromkeys(
        f"{record['hardware'].get('processor')}, {record['hardware'].get('cores')} cores" for record in records.values()
    )
    note = f"Made with {', '.join(versions)}; on {'; '.join(machines)}."
    return TableLayout(f"Provenance: {model}", [], ["", "digest of the recipe"], [("", rows)], note)


def _what(path: Path, folder: Path) -> str:
    name = path.name.removesuffix("provenance.json").rstrip(".")
    return str(path.parent.relative_to(folder) / name)
