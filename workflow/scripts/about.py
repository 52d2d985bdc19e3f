"""Write a model's opening section of the report and its provenance page."""

from __future__ import annotations

import html
import json
from pathlib import Path

from job import Job, main
from tallmasks.artifacts.labels import digest_of
from tallmasks.io.atomic_files import atomic_write_text
from tallmasks.results.typesetting import Cell, TableLayout, html_page


def run(job: Job) -> None:
    model = job.params["model"]
    pages = {
        "opening": opening(model, Path("results") / model),
        "provenance": html_page(provenance(model, Path("results") / model)),
    }
    for name, page in pages.items():
        atomic_write_text(job.folder / f"{name}.html", page)


def opening(model: str, folder: Path) -> str:
    """HTML of the table of methods and two figures; workflow/report/workflow.rst includes and styles it."""
    page = (folder / "tables" / "methods.html").read_text()
    table = page[page.index("<table>") : page.index("</body>")]
    figures = [(folder / "figures" / f"{name}.svg").read_text() for name in ("overview", "per_task")]
    drawn = [figure[figure.index("<svg") :] for figure in figures]
    return "\n".join([f'<div class="opening"><h2>{html.escape(model)}</h2>', table, *drawn, "</div>\n"])


def provenance(model: str, folder: Path) -> TableLayout:
    records = {path: json.loads(path.read_text()) for path in sorted(folder.rglob("*provenance.json"))}
    digests = {path.relative_to(folder): digest_of(record["recipe"]) for path, record in records.items()}
    rows = [[Cell(f"{p}".removesuffix("provenance.json").rstrip("./")), Cell(one)] for p, one in digests.items()]
    versions = dict.fromkeys(f"{n} {value}" for record in records.values() for n, value in record["versions"].items())
    machines = dict.fromkeys(record["machine"].split(", ")[0] for record in records.values())
    note = f"Made with {', '.join(versions)}; on {'; '.join(machines)}."
    return TableLayout(f"Provenance: {model}", [], ["", "digest of the recipe"], [("", rows)], note)


if __name__ == "__main__":
    main(run)
