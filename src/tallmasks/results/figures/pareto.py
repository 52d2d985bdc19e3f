"""Beyond the paper: accuracy against stored bits, and the methods that no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from tallmasks import methods
from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import benchmark_title

FIGURE = FigureSpec(
    title="Accuracy against stored bits",
    place=110,
    views=("benchmark",),
)


def data(results: ResultFiles) -> pd.DataFrame:
    """The methods of the tables; see `fronts`."""
    return fronts(results, "table.csv")


def fronts(results: ResultFiles, file: str) -> pd.DataFrame:
    """One row per benchmark and method of a file: normalised test accuracy in percent, Gb stored, and whether it is on
    the Pareto front: no other method is as accurate with fewer bits, or more accurate with as many."""
    table = results.each(file)[["benchmark", "method", "normalized_accuracy", "storage_gb"]]
    tasks = table["benchmark"].map({name: len(tasks) for name, tasks in results.benchmarks.items()})
    table = table.assign(
        tasks=tasks, at_least=[methods.get(name).stores_more for name in table["method"]], on_front=False
    )
    for _, part in table.groupby("benchmark"):
        table.loc[part.index, "on_front"] = [_on_front(row, part) for row in part.itertuples()]
    return table


def _on_front(row: Any, part: pd.DataFrame) -> bool:
    no_worse = (part["normalized_accuracy"] >= row.normalized_accuracy) & (part["storage_gb"] <= row.storage_gb)
    better = (part["normalized_accuracy"] > row.normalized_accuracy) | (part["storage_gb"] < row.storage_gb)
    return not (no_worse & better).any()


def draw(data: pd.DataFrame, height: float = 2.8) -> Figure:
    """A panel per benchmark: a hollow marker per method, since many lie close together; the front is a step line.

    Args:
        data: what `fronts` gave.
        height: of a panel with its share of the legend, in inches.
    """
    parts = list(style.groups(data, "benchmark"))
    figure, axes = style.panels(len(parts), columns=3, height=height, sharey=True)
    for panel, (benchmark, part) in zip(axes, parts, strict=True):
        front = part[part["on_front"]].sort_values("storage_gb")
        panel.step(
            front["storage_gb"], front["normalized_accuracy"],
            where="post", color=style.BLACK, linewidth=0.8, label="Pareto front",
        )  # fmt: skip
        for row in part.itertuples():
            look = style.look(row.method)
            label = style.title_of(row.method) + (" (stores more)" if row.at_least else "")
            panel.plot(
                [row.storage_gb],
                [row.normalized_accuracy],
                marker=look.marker,
                color=look.color,
                markersize=6.5,
                linestyle="none",
                fillstyle="none",
                label=label,
            )
        panel.set(title=benchmark_title(benchmark, int(part["tasks"].iloc[0])), xscale="log")
        panel.set_xlabel("stored bits (Gb)")
        ticks = {f"{tick:.3g}": tick for tick in _apart(sorted(set(part["storage_gb"])))}
        panel.set_xticks(list(ticks.values()), list(ticks))
        panel.minorticks_off()
        panel.margins(x=0.12)
    axes[0].set_ylabel("normalised accuracy (%)")
    style.legend(figure, axes, columns=4)
    return figure


def _apart(values: Sequence[float]) -> list[float]:
    """Those of ascending values whose labels do not lie on each other on a logarithmic axis: the ends, and between them
    what keeps a distance of a quarter of the axis."""
    gap = (values[-1] / values[0]) ** (1 / 4)
    found = [values[0]]
    for value in values[1:-1]:
        if value > gap * found[-1] and values[-1] > gap * value:
            found.append(value)
    return list(dict.fromkeys([*found, values[-1]]))
