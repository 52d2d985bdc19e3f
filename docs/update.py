"""Put what the workflow printed for the tiny models and the real ones into docs/.

`make docs` builds their tables and figures first, then runs this.  Nothing is computed here: files are copied, figures
are drawn from their CSVs, and marked blocks of pages are replaced by tables for people.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reproduction.results.figures import FIGURES, figure_module, style
from reproduction.results.paper import TABLES
from reproduction.results.tables import mark_explained, marked, rows_by_section, score_text
from reproduction.results.typesetting import TableLayout, byte_unit, markdown
from tallmasks import methods
from tallmasks.operations.compress import METHOD

ROOT = Path(__file__).parent.parent
BENCHMARKS = ("8tasks", "14tasks", "20tasks")
SEEDS_FILES = ("seeds/table.csv", "seeds/table.md", "seeds/per_seed.csv")
FILES = ("table.csv", "table.md", "per_task.csv", "selection.json", "agreement.csv", *SEEDS_FILES)

PICTURE = {
    "fine_tuned": "fine-tuned models",
    METHOD: "compress",
    "lossless": "compress, lossless",
    "tall_mask_ties": "TALL-masks",
    "tsv_m": "TSV-M",
    "consensus_task_arithmetic": "consensus merging",
    "task_arithmetic": "task arithmetic",
}
"""The rows of docs/overview.png, the picture of the README."""
PICTURED = {"minilm": "text", "dinov2": "image"}
"""Its models, and what they classify."""

LANGUAGE = {
    "tiny_t5": ("per_task", "mask_agreement", "threshold", "task_count"),
    "tiny_t5_ia3": ("mask_agreement", "threshold"),
}
"""The tiny language models, and the figures that are shown of each."""
REAL = {
    "minilm": (
        "mask_percentage", "mask_agreement", "per_task", "task_count", "threshold", "validation_alpha",
        "validation_lambda", "mask_density", "mask_overlap", "pareto",
    ),
    "dinov2": ("mask_percentage", "mask_agreement", "per_task", "pareto"),
}  # fmt: skip
"""The real models, and the figures that are shown of each."""
LANGUAGE_BENCHMARKS = ("7nlp", "8qa", "11nlp")

SPREAD = (("tiny", "8tasks"), ("tiny_t5", "11nlp"))
"""Where every method is compared over seeds, by model and benchmark."""
FIELD_FILES = ("field.csv", "field.md", "field_seeds/table.csv", "field_seeds/table.md", "field_seeds/per_seed.csv")


def copy_results() -> None:
    """The files of every benchmark, as they came out."""
    for benchmark in BENCHMARKS:
        for name in FILES:
            copy(ROOT / "results" / "tiny" / benchmark / name, ROOT / "docs" / "tiny" / benchmark / name)


def copy_language() -> None:
    """Tables over seeds and figures of the tiny language models.

    No table of one seed: another processor is like another seed there (docs/results.md).
    """
    target = ROOT / "docs" / "tiny_t5"
    for model, drawn in LANGUAGE.items():
        for benchmark in LANGUAGE_BENCHMARKS:
            for name in SEEDS_FILES:
                copy(ROOT / "results" / model / benchmark / name, target / model / benchmark / name)
        for name in drawn:
            copy_figure(ROOT / "results" / model, target / model, name)


def copy_real() -> None:
    """Tables and figures of the real models."""
    for model, drawn in REAL.items():
        source, target = ROOT / "results" / model, ROOT / "docs" / model
        for name in (*FILES, "field.csv", "field.md"):
            copy(source / "8tasks" / name, target / "8tasks" / name)
        for name in drawn:
            copy_figure(source, target, name)


def copy_fields() -> None:
    """Every method over seeds."""
    for model, benchmark in SPREAD:
        folder = ROOT / "docs" / (model if model == "tiny" else f"tiny_t5/{model}") / benchmark
        for name in FIELD_FILES:
            copy(ROOT / "results" / model / benchmark / name, folder / name)


def every_row(model: str) -> pd.DataFrame:
    """Every method on a real model, by method."""
    folder = ROOT / "docs" / model / "8tasks"
    table, field = (pd.read_csv(folder / f"{name}.csv").set_index("method") for name in ("table", "field"))
    every = pd.concat([table, field[~field.index.isin(table.index)]])
    return every.loc[sorted(every.index, key=lambda name: (methods.get(name).order, name))]


def every_method() -> str:
    """Every method on the real models: accuracy, also relative to the fine-tuned models, and size."""
    tables = {model: every_row(model) for model in REAL}
    first = next(iter(tables.values())).reset_index()[["section", "method", "formula_gbit"]]
    unit, factor = byte_unit(first["formula_gbit"])

    def cells(row: Mapping[str, Any]) -> list[str]:
        every = [table.loc[row["method"]].to_dict() for table in tables.values()]
        scores = [score_text(one["accuracy"], one["normalized_accuracy"], row["method"]) for one in every]
        more = ">" if methods.get(row["method"]).stores_more else ""
        return [*map(marked, scores, every), f"{more}{factor * row['formula_gbit']:.1f}"]

    note = (
        "Test accuracy averaged over the tasks, in parentheses relative to the fine-tuned models, and size of minilm."
    )
    note += mark_explained(pd.concat(tables.values()))
    columns = ["", *(f"{model} (%)" for model in tables), unit]
    layout = TableLayout("", [], columns, rows_by_section(first, cells), note)
    return markdown(layout, table_per_section=True).split("\n", 1)[1].strip()


def copy_paper() -> None:
    """The paper's tables and figures."""
    results, target = ROOT / "results" / "tiny", ROOT / "docs" / "tiny"
    for name in TABLES:
        for ending in ("csv", "md", "tex"):
            copy(results / "tables" / f"{name}.{ending}", target / "tables" / f"{name}.{ending}")
    for name in FIGURES:
        copy_figure(results, target, name)


def copy_figure(results: Path, target: Path, name: str) -> None:
    """The numbers of a figure of results/<model>, and the figure drawn from them; from the old numbers if it was not
    built."""
    numbers = target / "figures" / f"{name}.csv"
    copy(results / "figures" / numbers.name, numbers)
    if numbers.exists():
        figure = figure_module(name).draw(pd.read_csv(numbers))
        for kind in ("png", "pdf"):
            numbers.with_suffix(f".{kind}").write_bytes(style.rendered(figure, kind))
        style.plt.close(figure)


def draw_picture() -> None:
    """docs/overview.png: bars of accuracy and size (of files; of masks by formula) of a few methods on the real models.

    It is 400 pixels wide at 96 dpi, with labels of 9 points, so a phone shows it at its own size.
    """
    colors = [style.KINDS[style.kind_of(method)].color for method in PICTURE]
    with style.plt.rc_context({**style.SETTINGS, "font.family": "DejaVu Sans", "savefig.dpi": 2 * 96}):
        figure, every = style.plt.subplots(len(PICTURED), 2, figsize=(400 / 96, 4.4), sharey=True, layout="constrained")
        for (model, kind), panels in zip(PICTURED.items(), every, strict=True):
            rows = every_row(model).loc[[*PICTURE]]
            sizes = rows["file_gbit"].fillna(rows["formula_gbit"])
            unit, factor = byte_unit(sizes)
            columns = {
                f"8 {kind} classifiers: accuracy": (rows["normalized_accuracy"], "{:.1f} %"),
                "size": (factor * sizes, f"{{:.0f}} {unit}"),
            }
            for panel, (name, (values, text)) in zip(panels, columns.items(), strict=True):
                bars = panel.barh([*PICTURE.values()], values, color=colors)
                panel.bar_label(bars, [text.format(value) for value in values], fontsize=9, padding=2)
                panel.set_title(name, fontsize=9, loc="left" if name == "size" else "right")
                panel.set(xlim=(0, 1.55 * values.max()), xticks=[])
                panel.tick_params("y", length=0, labelsize=9)
                panel.grid(False)
                panel.spines["bottom"].set_visible(False)
        every[0][0].invert_yaxis()
        style.legend_of_kinds(figure)
        (ROOT / "docs" / "overview.png").write_bytes(style.rendered(figure, "png"))
    style.plt.close(figure)


def copy(source: Path, target: Path) -> None:
    """Put a new file in the place of an old one; what was not built stays as it is."""
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    else:
        print(f"{source.relative_to(ROOT)} was not built, and docs/ keeps what is there")


def body(table: Path) -> str:
    """A table for people without its title."""
    return table.read_text().split("\n", 1)[1].strip()


def fill(text: str, mark: str, content: str, page: str) -> str:
    """Replace what stands between <!-- mark --> and <!-- /mark -->."""
    pattern = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- /{re.escape(mark)} -->)", re.DOTALL)
    found = pattern.findall(text)
    if len(found) != 1:
        raise SystemExit(f"{page}: expected one block marked {mark!r}, found {len(found)}")
    return pattern.sub(lambda match: f"{match[1]}\n{content}\n\n{match[2]}", text)


def main() -> None:
    copy_results()
    copy_paper()
    copy_language()
    copy_real()
    copy_fields()
    draw_picture()
    fill_pages()


def fill_pages() -> None:
    """The tables of the first run and of the results, and the address of the repository in the README."""
    set_clone_url(ROOT / "README.md", ROOT / "CITATION.cff")
    fill_page(ROOT / "docs" / "first_run.md", {"table:8tasks": body(ROOT / "docs" / "tiny" / "8tasks" / "table.md")})
    fill_page(ROOT / "docs" / "results.md", {"every_method": every_method()})


def fill_page(page: Path, tables: Mapping[str, str]) -> None:
    """Write tables between the marks of a page."""
    text = page.read_text()
    for mark, table in tables.items():
        text = fill(text, mark, table, page.name)
    page.write_text(text)


def set_clone_url(page: Path, citation: Path) -> None:
    """Let `git clone` of a page name the repository-code of CITATION.cff, if that is set."""
    if url := re.search(r"^repository-code: *[\"']?([^\s\"']+)", citation.read_text(), re.MULTILINE):
        page.write_text(re.sub(r"^git clone \S+", f"git clone {url[1]}", page.read_text(), flags=re.MULTILINE))
