"""What was asked for, shown at the end of a run."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

TABLE = "table.csv"
SHOWN = 3  # tables; of more, the paths alone
BEST = "  <- best"
"""What ends the line of a section's best row."""
BOUND = "Fine-tuned"
"""The row that the others are measured by."""
NEXT = """\
Next: `make figures` draws the paper's figures, `make report` puts all on one
page; other tasks, methods and grids stand in params.yaml."""
UNKNOWN_TO_DVC = """\
DVC does not know of it yet: `dvc repro` records it and makes nothing again;
then `dvc push` shares it."""

Rows = list[list[str]]


def asked_for(arguments: Iterable[str]) -> list[Path]:
    """The results files among a command line's words."""
    words = ["results/report.html" if word == "report" else word for word in arguments]
    return [Path(word) for word in words if word.startswith("results/") and Path(word).is_file()]


def summary(asked: Iterable[Path], written: Sequence[str]) -> Iterator[str]:
    """The tables that were asked for, or else those that were written; what came out; the paths last."""
    files = list(asked) or [Path(path) for path in written if Path(path).name == TABLE]
    tables = [path for path in files if path.name == TABLE and path.with_suffix(".md").is_file()]
    for path in tables if len(tables) <= SHOWN else []:
        yield from _shown(path.with_suffix(".md").read_text())
    if tables:
        yield NEXT
    if written and "DVC_STAGE" not in os.environ and Path(".dvc").is_dir():  # DVC has called snakemake itself otherwise
        yield UNKNOWN_TO_DVC
    yield from map(str, files)
    if not files:
        folders = Counter(str(Path(path).parent) for path in written)
        yield from (f"{folder}: {count} file{'s' * (count > 1)} written" for folder, count in folders.items())


def _shown(markdown: str) -> Iterator[str]:
    """A page of Markdown with its tables in columns, and in a sentence the best of each."""
    best: list[str] = []
    for block in markdown.strip().split("\n\n"):
        if not block.startswith("|"):
            yield "\n" + block.lstrip("# ")
            continue
        rows = [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in block.splitlines()]
        place = _best(rows)
        yield "\n" + "\n".join(_in_columns(rows, place))
        if place is not None:
            best.append(f"{rows[0][0].lower()} {rows[place][0]} with {rows[place][1]}")
    if best:
        yield f"Best: {'; '.join(best)}.\n"


def _best(rows: Rows) -> int | None:
    """The row whose second column begins with the highest number, apart from the fine-tuned models."""
    numbers = {
        place: float(number[0])
        for place, row in enumerate(rows)
        if row[0] != BOUND and len(row) > 1 and (number := re.match(r"\d+(\.\d+)?", row[1]))
    }
    return max(numbers, key=lambda place: numbers[place]) if len(numbers) > 1 else None


def _in_columns(rows: Rows, best: int | None) -> Iterator[str]:
    """The rows of a table, the first column to the left and numbers to the right; without Markdown's ruler."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=False)]
    for place, row in enumerate(rows):
        if not all(re.fullmatch(":?-+:?", cell) for cell in row):
            first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=False))
            line = "  ".join([row[0].ljust(len(first)), *others])
            yield line.rstrip() + (BEST if place == best else "")
