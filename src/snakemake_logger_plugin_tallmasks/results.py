"""What was asked for, shown at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

TABLE = "table.csv"
SHOWN = 3  # tables; of more, the paths alone


def asked_for(arguments: Iterable[str]) -> list[Path]:
    """The results files among a command line's words."""
    return [Path(word) for word in arguments if word.startswith("results/") and Path(word).is_file()]


def summary(asked: Iterable[Path], written: Iterable[str]) -> Iterator[str]:
    """The tables that were asked for, or else those that were written, each with its path last."""
    files = list(asked) or [Path(path) for path in written if Path(path).name == TABLE]
    tables = [path for path in files if path.name == TABLE]
    for path in files:
        for_people = path.with_suffix(".md")
        if path in tables and len(tables) <= SHOWN and for_people.is_file():
            yield f"\n{for_people.read_text().strip()}\n"
        yield str(path)
    if not files:
        folders = Counter(str(Path(path).parent) for path in written)
        yield from (f"{folder}: {count} file{'s' * (count > 1)} written" for folder, count in folders.items())
