"""Write the opening page and the provenance page of a model's report."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from pathlib import Path

from job import Job, main
from reproduction.artifacts.labels import digest_of
from reproduction.results.typesetting import Cell, TableLayout, html_page
from tallmasks.io.atomic_files import atomic_write_text


def opening(model: str, shown: Iterable[Path]) -> str:
    """HTML of tables and figures; workflow/report/workflow.rst styles it."""
    parts = list(map(body, shown)) or ["<p>No figure or table of the paper was built for this model.</p>"]
    return "\n".join([f'<div class="opening"><h2>{html.escape(model)}</h2>', *parts, "</div>\n"])


def body(file: Path) -> str:
    """The table in an HTML page, or the figure in an SVG file."""
    page = file.read_text()
    return page[page.index("<svg") :] if file.suffix == ".svg" else page[page.index("<table>") : page.index("</body>")]


def provenance(model: str, folder: Path) -> TableLayout:
    records = {path: json.loads(path.read_text()) for path in sorted(folder.rglob("*provenance.json"))}
    digests = {path.relative_to(folder): digest_of(record["recipe"]) for path, record in records.items()}
    rows = [[Cell(f"{p}".removesuffix("provenance.json").rstrip("./")), Cell(one)] for p, one in digests.items()]
    versions = dict.fromkeys(f"{n} {value}" for record in records.values() for n, value in record["versions"].items())
    machines = dict.fromkeys(record["machine"].split(", ")[0] for record in records.values())
    note = f"Made with {', '.join(versions)}; on {'; '.join(machines)}."
    return TableLayout(f"Provenance: {model}", [], ["", "digest of the recipe"], [("", rows)], note)


@main
def run(job: Job) -> None:
    model, results = job.params["model"], Path("results", job.params["model"])
    atomic_write_text(job.folder / "opening.html", opening(model, map(Path, job.params["shown"])))
    atomic_write_text(job.folder / "provenance.html", html_page(provenance(model, results)))
