"""Put what benchmarks/streaming.py measured into the page that tells of it.

    python benchmarks/streaming_tables.py

What stands between the marks of docs/benchmarks/streaming.md is replaced by tables of docs/benchmarks/streaming.csv
and streaming_cold.csv.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

DOCS = Path(__file__).parent.parent / "docs" / "benchmarks"
TITLES = {
    "vit_b32": "ViT-B/32",
    "vit_l14": "ViT-L/14",
    "t5_large": "T5-large",
    "llama_7b": "7 B",
}


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def by_model(measured: pd.DataFrame) -> str:
    """What each command took on each model's files."""
    rows = []
    for (shape, tasks), part in measured.groupby(["shape", "tasks"], sort=False):
        name, _, layers = str(shape).partition(" (")
        title = TITLES.get(name, name) + (f", {layers.rstrip(')')}" if layers else "")
        size = part["parameters"].iloc[0] / 1e6
        rows.append([f"**{title}, {tasks} tasks**, {size:.1f} M parameters", "", "", "", ""])
        rows += [
            [
                row.what,
                f"{row.wall_s:.2f}",
                f"{row.wall_ns:.2f}",
                f"{row.ns_per_parameter_task:.2f}",
                f"{row.anon_mib:.0f}",
            ]
            for row in part.itertuples()
        ]
    return table(["", "wall s", "wall ns", "processor ns", "anonymous MiB"], rows)


def main() -> None:
    measured, page = pd.read_csv(DOCS / "streaming.csv"), DOCS / "streaming.md"
    text = page.read_text()
    for mark, content in {
        "models": by_model(measured),
        "cold": by_model(pd.read_csv(DOCS / "streaming_cold.csv")),
    }.items():
        pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"{page}: expected one block marked {mark!r}")
        text = pattern.sub(lambda match, content=content: f"{match[1]}\n{content}\n\n{match[2]}", text)
    page.write_text(text)


if __name__ == "__main__":
    main()
