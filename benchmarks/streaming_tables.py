"""Put what benchmarks/streaming.py measured into the page that tells of it.

    python benchmarks/streaming_tables.py

What stands between the marks of docs/benchmarks/streaming.md is replaced by tables of docs/benchmarks/streaming.csv,
by what the goals come to, and by tables of streaming_bare.csv and streaming_cold.csv.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

DOCS = Path(__file__).parent.parent / "docs" / "benchmarks"
TITLES = {
    "vit_b32": "ViT-B/32",
    "vit_b16": "ViT-B/16",
    "vit_l14": "ViT-L/14",
    "t5_large": "T5-large",
    "llama_7b": "7 B",
}
COMMANDS = {
    "merge task_arithmetic": "task arithmetic",
    "merge ties": "TIES",
    "compress task_arithmetic": "compressing",
}
BARE = "read and write alone"
WALK = "the same in one walk over pieces"
ALL = f"thresholds and {WALK}"
FEWEST, SMALLEST = 8, 10_000_000
"""Tasks and parameters from which on a call costs little beside the work."""


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], words: int = 1) -> str:
    heads = list(heads)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * words}{'---:|' * (len(heads) - words)}"]
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


def sides(measured: pd.DataFrame) -> pd.DataFrame:
    """Wall ns in memory: ours and torch's, by work and tasks."""
    arrays = measured[measured["shape"] == "arrays"]
    side = arrays["what"].str.partition(": ")
    return arrays.assign(side=side[0], work=side[2]).pivot_table("wall_ns", ["work", "tasks"], "side", sort=False)


def in_memory(measured: pd.DataFrame) -> str:
    found = sides(measured)
    counts = list(dict.fromkeys(found.index.get_level_values("tasks")))
    heads = [
        "wall ns of each parameter and task",
        *(f"{t} tasks: {s}" for t in counts for s in ("ours", "torch", "ratio")),
    ]
    rows = []
    for work in dict.fromkeys(found.index.get_level_values("work")):
        pairs = [found.loc[work, count] for count in counts]
        rows.append(
            [work, *(text for p in pairs for text in (f"{p.ours:.2f}", f"{p.torch:.2f}", f"{p.torch / p.ours:.0f}"))]
        )
    return table(heads, rows)


def by_size(measured: pd.DataFrame) -> str:
    grid = measured[measured["shape"] == "grid"].pivot_table("wall_ns", ["parameters", "tasks"], "what")
    rows = [[f"{p / 1e6:.0f} M, {t}", *(f"{row[what]:.2f}" for what in COMMANDS)] for (p, t), row in grid.iterrows()]
    return table(["parameters, tasks", *COMMANDS], rows)


def beside_bare(measured: pd.DataFrame) -> str:
    """What the files alone take, and how many times as long each command."""
    grid = measured.pivot_table("wall_ns", ["parameters", "tasks"], "what")
    rows = [
        [f"{p / 1e6:.0f} M, {t}", f"{row[BARE]:.2f}", *(f"{row[what] / row[BARE]:.1f}" for what in COMMANDS)]
        for (p, t), row in grid.iterrows()
    ]
    return table(["parameters, tasks", f"{BARE}, ns", *(f"{what}, times that" for what in COMMANDS)], rows)


def goals(measured: pd.DataFrame) -> str:
    arrays, grid = sides(measured), measured[measured["shape"] == "grid"]
    whole = measured[~measured["shape"].isin(["arrays", "grid"])]
    large = grid[(grid["tasks"] >= FEWEST) & (grid["parameters"] >= SMALLEST)]
    ours = whole[~whole["what"].str.contains("mergekit|read the files")]

    def span(rows: pd.DataFrame, digits: int = 1) -> str:
        low, high = rows["wall_ns"].min(), rows["wall_ns"].max()
        return f"{low:.{digits}f} to {high:.{digits}f}"

    def each(rows: pd.DataFrame) -> str:
        return ", ".join(f"{title} {span(rows[rows['what'] == what])}" for what, title in COMMANDS.items())

    def listed(work: str, value: Callable[[pd.Series], float], digits: int) -> str:
        return " and ".join(f"{value(row):.{digits}f}" for _, row in arrays.loc[work].iterrows())

    def ratio(row: pd.Series) -> float:
        return row["torch"] / row["ours"]

    rows = [
        [
            "array work at most 2 ns of each parameter and task",
            f"{listed(WALK, lambda row: row.ours, 2)}; {listed(ALL, lambda row: row.ours, 2)} with thresholds",
        ],
        [
            "at least 30 times faster than dense torch",
            f"{listed(WALK, ratio, 0)} times; {listed(ALL, ratio, 0)} with thresholds",
        ],
        [
            "with the files at most 3 ns in all",
            f"in a warm process, from {FEWEST} tasks and {SMALLEST / 1e6:.0f} M parameters on: {each(large)}. "
            f"As a command, with the start: {each(whole)}",
        ],
        ["at least 10 times less processor time than mergekit's TIES", _beside_mergekit(whole)],
        ["anonymous memory under 0.5 GiB", f"{max(ours['anon_mib'].max(), grid['anon_mib'].max()):.0f} MiB at most"],
        [
            "time flat within 20 %, 1 M to 300 M, 2 to 20 tasks",
            f"{each(grid)}. At one number of tasks, from {SMALLEST / 1e6:.0f} M parameters on, within {_apart(grid)}. "
            f"A further task, in ns per parameter: {_further(grid)}",
        ],
    ]
    return table(["goal", "found"], rows, words=2)


def _beside_mergekit(whole: pd.DataFrame) -> str:
    there = whole[whole["what"] == "mergekit ties"]
    if there.empty:
        return "not measured"
    same = whole[(whole["shape"] == there["shape"].iloc[0]) & (whole["tasks"] == there["tasks"].iloc[0])]
    cpu = same.set_index("what")["ns_per_parameter_task"]
    start = (cpu["mergekit ties"] - cpu["mergekit start-up"]) / (cpu["merge ties"] - cpu["start-up"])
    return f"{cpu['mergekit ties'] / cpu['merge ties']:.0f} times less with the start of both, {start:.0f} without"


def _further(grid: pd.DataFrame) -> str:
    """By command the slope of time over the number of tasks, the least and the largest of all sizes."""
    found = []
    for what, title in COMMANDS.items():
        slopes = []
        for _, part in grid[grid["what"] == what].groupby("parameters"):
            if len(part) > 1:
                slopes.append(np.polyfit(part["tasks"], part["wall_ns"] * part["tasks"], 1)[0])
        found.append(f"{title} {min(slopes):.1f} to {max(slopes):.1f}")
    return ", ".join(found)


def _apart(grid: pd.DataFrame) -> str:
    """By command how far times of several sizes are apart, at most, in percent of the least."""
    found = []
    for what, title in COMMANDS.items():
        large = grid[(grid["what"] == what) & (grid["parameters"] >= SMALLEST)]
        times = large.groupby("tasks")["wall_ns"]
        found.append(f"{100 * (times.max() / times.min() - 1).max():.0f} % ({title})")
    return ", ".join(found)


def main() -> None:
    measured, page = pd.read_csv(DOCS / "streaming.csv"), DOCS / "streaming.md"
    text = page.read_text()
    whole = measured[~measured["shape"].isin(["arrays", "grid"])]
    for mark, content in {
        "models": by_model(whole),
        "arrays": in_memory(measured),
        "grid": by_size(measured),
        "bare": beside_bare(pd.read_csv(DOCS / "streaming_bare.csv")),
        "goals": goals(measured),
        "cold": by_model(pd.read_csv(DOCS / "streaming_cold.csv")),
    }.items():
        pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"{page}: expected one block marked {mark!r}")
        text = pattern.sub(lambda match, content=content: f"{match[1]}\n{content}\n\n{match[2]}", text)
    page.write_text(text)


if __name__ == "__main__":
    main()
