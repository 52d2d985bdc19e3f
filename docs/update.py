"""Put what the workflow printed for the tiny models into docs/tiny/, docs/tiny_t5/ and the README.

`make docs` builds results/tiny/*/ with the spread over seeds first, and tables, seeds and figures of the tiny language
models, then runs this.  Nothing is computed here: files are copied, and marked blocks of pages are replaced by tables
for people.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tallmasks.results.figures import FIGURES
from tallmasks.results.paper import TABLES

ROOT = Path(__file__).parent.parent
BENCHMARKS = ("8tasks", "14tasks", "20tasks")
FILES = (
    "table.csv",
    "table.md",
    "per_task.csv",
    "selection.json",
    "agreement.csv",
    "seeds/table.csv",
    "seeds/table.md",
    "seeds/per_seed.csv",
)

LANGUAGE = {
    "tiny_t5": ("radar", "mask_agreement", "threshold", "task_count"),
    "tiny_t5_ia3": ("mask_agreement", "threshold"),
}
"""The tiny language models, and the figures that are shown of each."""
LANGUAGE_BENCHMARKS = ("7nlp", "8qa", "11nlp")


def copy_results() -> None:
    """The files of every benchmark, as they came out."""
    for benchmark in BENCHMARKS:
        for name in FILES:
            copy(ROOT / "results" / "tiny" / benchmark / name, ROOT / "docs" / "tiny" / benchmark / name)


def copy_language() -> None:
    """Tables and figures of the tiny language models, and tables for people in the page that tells of them."""
    target = ROOT / "docs" / "tiny_t5"
    page = target / "README.md"
    text = page.read_text()
    for model, drawn in LANGUAGE.items():
        for benchmark in LANGUAGE_BENCHMARKS:
            for name in FILES:
                copy(ROOT / "results" / model / benchmark / name, target / model / benchmark / name)
            for kind, file in (("", "table.md"), (":seeds", "seeds/table.md")):
                mark, table = f"{model}:{benchmark}{kind}", target / model / benchmark / file
                if f"<!-- {mark} -->" in text and table.exists():
                    text = fill(text, mark, body(table), page.name)
        for name in drawn:
            copy_figure(ROOT / "results" / model, target / model, name)
    page.write_text(text)


def copy_paper() -> None:
    """The paper's tables and figures, and a page that shows them."""
    results, target = ROOT / "results" / "tiny", ROOT / "docs" / "tiny"
    page = ["# The paper's tables and figures for the tiny model", "", "[What each shows](../figures.md)", ""]
    for name in TABLES:
        for ending in ("csv", "md", "tex"):
            copy(results / "tables" / f"{name}.{ending}", target / "tables" / f"{name}.{ending}")
        page += [f"## {TABLES[name].title}", "", body(target / "tables" / f"{name}.md"), ""]
    for name, figure in FIGURES.items():
        copy_figure(results, target, name)
        place = f" ({figure.paper[0].lower()}{figure.paper[1:]} of the paper)" if figure.paper else ""
        page += [f"## {figure.title}{place}", "", f"![{figure.title}](figures/{name}.png)", ""]
    (target / "README.md").write_text("\n".join(page))


def copy_figure(results: Path, target: Path, name: str) -> None:
    """A figure of results/<model> and its numbers."""
    for ending in ("csv", "png", "pdf"):
        copy(results / "figures" / f"{name}.{ending}", target / "figures" / f"{name}.{ending}")


def copy(source: Path, target: Path) -> None:
    """Put a new file in the place of an old one; what was not built stays as it is."""
    if not source.exists():
        print(f"{source.relative_to(ROOT)} was not built (`make docs` does), and docs/ keeps the one that is there")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


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
    readme = ROOT / "README.md"
    text = readme.read_text()
    for benchmark in BENCHMARKS:
        for kind in ("table", "seeds"):
            mark = f"{kind}:{benchmark}"
            if f"<!-- {mark} -->" in text:
                folder = ROOT / "docs" / "tiny" / benchmark
                text = fill(text, mark, body(folder / ("table.md" if kind == "table" else "seeds/table.md")))
    if "<!-- tiny_t5:11nlp -->" in text:
        text = fill(text, "tiny_t5:11nlp", body(ROOT / "docs" / "tiny_t5" / "tiny_t5" / "11nlp" / "table.md"))
    readme.write_text(text)


if __name__ == "__main__":
    main()
