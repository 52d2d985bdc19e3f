"""Put what the workflow printed for the tiny models into docs/ and the README.

`make docs` builds results/tiny/*/ with the spread over seeds first, every method's table over seeds, and tables, seeds
and figures of the tiny language models, then runs this.  Nothing is computed here: files are copied, figures are drawn
from their CSVs, and marked blocks of pages are replaced by tables for people.  Where every method was built for one
seed alone (`field.csv`), docs/methods.md shows that.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from reproduction.results.figures import FIGURES, figure_module, style
from reproduction.results.paper import TABLES
from reproduction.results.reference import PAPER_TASKS, published_numbers
from reproduction.results.tables import table_for_people
from reproduction.results.typesetting import Cell, TableLayout, byte_unit, markdown
from tallmasks import methods
from tallmasks.methods.merges import LEARNED
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
"""The rows of docs/overview.png, the picture of the README and of the site's first page."""

SHORT = (
    "zeroshot", "task_arithmetic", "ties", "consensus_task_arithmetic", "consensus_ties", "tsv_m", METHOD,
    f"{METHOD}:step=0.2", "lossless", "tall_mask_ties", "tall_mask_ties:bits=3", "fine_tuned",
)  # fmt: skip
"""The rows of the README's table, which is that of the real model with more rows (see docs/real_model.md)."""


LANGUAGE = {
    "tiny_t5": ("per_task", "mask_agreement", "threshold", "task_count"),
    "tiny_t5_ia3": ("mask_agreement", "threshold"),
}
"""The tiny language models, and the figures that are shown of each."""
REAL = (
    "mask_percentage", "mask_agreement", "per_task", "task_count", "threshold", "validation_alpha", "validation_lambda",
    "mask_density", "mask_overlap", "pareto",
)  # fmt: skip
"""The figures that are shown of the real model."""
LANGUAGE_BENCHMARKS = ("7nlp", "8qa", "11nlp")

LATER = {("tiny", "8tasks"): ("vit_b32", PAPER_TASKS[:8]), ("tiny_t5", "11nlp"): None}
"""Where every method is compared, by model and benchmark, and the model whose published orders are looked at."""
FIELD_FILES = ("field.csv", "field.md", "field_seeds/table.csv", "field_seeds/table.md", "field_seeds/per_seed.csv")


def copy_results() -> None:
    """The files of every benchmark, as they came out."""
    for benchmark in BENCHMARKS:
        for name in FILES:
            copy(ROOT / "results" / "tiny" / benchmark / name, ROOT / "docs" / "tiny" / benchmark / name)


def copy_language() -> None:
    """Tables over seeds and figures of the tiny language models.

    No table of one seed: another processor is like another seed there (docs/tiny_model.md).
    """
    target = ROOT / "docs" / "tiny_t5"
    for model, drawn in LANGUAGE.items():
        for benchmark in LANGUAGE_BENCHMARKS:
            for name in SEEDS_FILES:
                copy(ROOT / "results" / model / benchmark / name, target / model / benchmark / name)
        for name in drawn:
            copy_figure(ROOT / "results" / model, target / model, name)


def copy_real() -> None:
    """Tables and figures of the real model, and the tables in its page."""
    source, target = ROOT / "results" / "minilm", ROOT / "docs" / "minilm"
    for name in (*FILES, "field.csv", "field.md"):
        copy(source / "8tasks" / name, target / "8tasks" / name)
    for name in REAL:
        copy_figure(source, target, name)
    tables = {"table:minilm:8tasks": "table.md", "minilm:8tasks:seeds": "seeds/table.md"}
    fill_page(ROOT / "docs" / "real_model.md", {mark: body(target / "8tasks" / name) for mark, name in tables.items()})


def copy_later() -> None:
    """Every method of the group "later": its table and gains, which published orders hold."""
    page = ROOT / "docs" / "methods.md"
    text = page.read_text()
    for (model, benchmark), published in LATER.items():
        folder = ROOT / "docs" / (model if model == "tiny" else f"tiny_t5/{model}") / benchmark
        for name in FIELD_FILES:
            copy(ROOT / "results" / model / benchmark / name, folder / name)
        spread, alone = folder / "field_seeds" / "table.md", folder / "field.md"
        if shown := next((table for table in (spread, alone) if table.exists()), None):
            text = fill(text, f"field:{model}:{benchmark}", body(shown), page.name)
        if published and (ours := _by_seed(folder)) is not None:
            layout = laid_out_orders(beside_orders(published_orders(*published), ours), benchmark)
            text = fill(text, f"orders:{model}:{benchmark}", markdown(layout).split("\n", 1)[1].strip(), page.name)
    page.write_text(text)


def _by_seed(folder: Path) -> pd.DataFrame | None:
    """Accuracies by seed and method; of one seed where no more was built; None where nothing was."""
    if (every := folder / "field_seeds" / "per_seed.csv").exists():
        return pd.read_csv(every)
    return pd.read_csv(folder / "field.csv").assign(seed=0) if (folder / "field.csv").exists() else None


def published_orders(model: str, tasks: Sequence[str]) -> pd.DataFrame:
    """Methods that are neighbours when those of one publication and section are sorted by accuracy: ``source``,
    ``family``, ``lower``, ``higher`` and ``published``, by how many points the one is above the other.

    Merges that learn are left out: those that were published learned from test images, ours do not.
    """
    merged = {*methods.names()} - {"fine_tuned", "zeroshot", *methods.needing(LEARNED)}
    published = published_numbers(model, tasks).dropna(subset="accuracy")
    published = published[published["method"].isin(merged)]
    published = published.assign(
        publication=[str(source).partition(",")[0] for source in published["source"]],
        section=[methods.get(str(name)).section for name in published["method"]],
    )
    rows = []
    for (family, publication, _), part in published.groupby(["family", "publication", "section"], sort=False):
        best = part.groupby("method", sort=False)["accuracy"].max().sort_values(kind="stable")
        for lower, higher in pairwise(best.index):
            if best[higher] > best[lower]:
                rows.append((publication, family, lower, higher, round(best[higher] - best[lower], 4)))
    return pd.DataFrame(rows, columns=["source", "family", "lower", "higher", "published"])


def beside_orders(orders: pd.DataFrame, per_seed: pd.DataFrame) -> pd.DataFrame:
    """`orders` of methods that are ours too, with the difference between ours of the same seed: ``gain_mean`` and
    ``gain_std`` over seeds, in points, ``holding`` of ``seeds`` with the one that was published as better above.

    ``per_seed``: ``seed``, ``method`` and ``accuracy`` in percent.
    """
    ours = per_seed.pivot(index="seed", columns="method", values="accuracy")
    orders = orders[orders["lower"].isin(ours.columns) & orders["higher"].isin(ours.columns)].reset_index(drop=True)
    gains = [ours[row.higher] - ours[row.lower] for row in orders.itertuples()]
    return orders.assign(
        gain_mean=[round(float(gain.mean()), 4) for gain in gains],
        gain_std=[round(float(gain.std(ddof=1)), 4) for gain in gains],
        holding=[int((gain > 0).sum()) for gain in gains],
        seeds=len(ours),
    )


def laid_out_orders(compared: pd.DataFrame, title: str) -> TableLayout:
    """`beside_orders` as people read it."""
    rows = []
    row: Any
    for row in compared.itertuples():
        order = f"{methods.get(row.higher).title} above {methods.get(row.lower).title}"
        spread = "" if pd.isna(row.gain_std) else f" ± {row.gain_std:.1f}"
        ours = f"{row.gain_mean:+.1f}{spread}", f"{row.holding} of {row.seeds}"
        texts = (order, f"{row.source} ({row.family})", f"+{row.published:.1f}", *ours)
        rows.append([Cell(text) for text in texts])
    return TableLayout(
        title,
        [],
        ["Published order", "By (checkpoints)", "Published, points", "Ours, points", "Holds in seeds"],
        [("", rows)],
        "Neighbours in accuracy among the methods of one publication. Ours: the difference on the same fine-tuned "
        "models, mean and sample standard deviation over fine-tuning seeds.",
    )


def copy_paper() -> None:
    """The paper's tables and figures."""
    results, target = ROOT / "results" / "tiny", ROOT / "docs" / "tiny"
    for name in TABLES:
        for ending in ("csv", "md", "tex"):
            copy(results / "tables" / f"{name}.{ending}", target / "tables" / f"{name}.{ending}")
    for name in FIGURES:
        copy_figure(results, target, name)


def paper() -> str:
    """The paper's tables and figures of docs/tiny, one below the other."""
    folder, parts = ROOT / "docs" / "tiny", []
    for name in TABLES:
        parts += [f"### {TABLES[name].title}", body(folder / "tables" / f"{name}.md")]
    for name, figure in FIGURES.items():
        if (folder / "figures" / f"{name}.png").exists():
            place = f" ({figure.paper[0].lower()}{figure.paper[1:]} of the paper)" if figure.paper else ""
            caption = (ROOT / "workflow" / "report" / f"{name}.rst").read_text().strip()
            parts += [f"### {figure.title}{place}", f"![{figure.title}](tiny/figures/{name}.png)", caption]
    return "\n\n".join(parts)


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
    """docs/overview.png: accuracy and sizes of files of a few methods on the real model, as bars.

    It is 400 pixels wide at 96 dpi, with labels of 9 points, so a phone shows it at its own size.
    """
    rows = pd.read_csv(ROOT / "docs" / "minilm" / "8tasks" / "table.csv").set_index("method").loc[[*PICTURE]]
    unit, factor = byte_unit(rows["file_gbit"])
    columns = {
        "relative accuracy": (rows["normalized_accuracy"], "{:.1f} %"),
        "size, 8 tasks": (factor * rows["file_gbit"], f"{{:.0f}} {unit}"),
    }
    with style.plt.rc_context({**style.SETTINGS, "font.family": "DejaVu Sans", "savefig.dpi": 2 * 96}):
        figure, panels = style.plt.subplots(1, 2, figsize=(400 / 96, 2.3), sharey=True, layout="constrained")
        for panel, (name, (values, text)) in zip(panels, columns.items(), strict=True):
            bars = panel.barh([*PICTURE.values()], values, color=[style.look_of(method).color for method in PICTURE])
            panel.bar_label(bars, [text.format(value) for value in values], fontsize=9, padding=2)
            panel.set_title(name, fontsize=9, loc="left")
            panel.set(xlim=(0, 1.55 * values.max()), xticks=[])
            panel.tick_params("y", length=0, labelsize=9)
            panel.grid(False)
            panel.spines["bottom"].set_visible(False)
        panels[0].invert_yaxis()
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


def fill(text: str, mark: str, content: str, page: str = "README.md") -> str:
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
    copy_later()
    draw_picture()
    fill_pages()


def fill_pages() -> None:
    """The tables of the README, of the first run and of the tiny models' page."""
    numbers = pd.read_csv(ROOT / "docs" / "tiny" / "8tasks" / "table.csv")
    eight = table_for_people(numbers, "").split("\n", 1)[1].strip()
    real = pd.read_csv(ROOT / "docs" / "minilm" / "8tasks" / "table.csv").set_index("method").loc[[*SHORT]]
    fill_page(ROOT / "README.md", {"short:minilm": short(table_for_people(real.reset_index(), ""))})
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        set_clone_url(page, ROOT / "CITATION.cff")
    fill_page(ROOT / "docs" / "first_run.md", {"table:8tasks": eight})
    language = {
        f"{model}:11nlp:seeds": body(ROOT / "docs" / "tiny_t5" / model / "11nlp" / "seeds" / "table.md")
        for model in LANGUAGE
    }
    fill_page(ROOT / "docs" / "tiny_model.md", language | {"paper:tiny": paper()})


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


def short(table: str) -> str:
    """The rows of SHORT, in one table, with the line below the tables."""
    lines = table.strip().splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    head = [rows["Merging"].replace("Merging", "Method"), "|---|---:|---:|"]
    return "\n".join([*head, *(rows[methods.get(name).title] for name in SHORT), "", lines[-1]])


if __name__ == "__main__":
    main()
