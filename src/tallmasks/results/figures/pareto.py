"""Beyond the paper: accuracy against stored bits, and the methods that no other one beats in both."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from tallmasks import methods
from tallmasks.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(title="Accuracy against stored bits", place=110, views=("tables",))


def data(results: ResultFiles) -> pd.DataFrame:
    """The methods of the tables; see `fronts`."""
    return fronts(results, "table.csv")


def fronts(results: ResultFiles, file: str) -> pd.DataFrame:
    """One row per benchmark and method of a file: normalised test accuracy in percent, Gb stored, and whether it is on
    the Pareto front: no other method is as accurate with fewer bits, or more accurate with as many."""
    table = results.each(file)[["benchmark", "method", "normalized_accuracy", "storage_gb"]]
    stores_more = [methods.get(name).stores_more for name in table["method"]]
    table = results.with_tasks(table).assign(at_least=stores_more, on_front=False)
    for _, part in table.groupby("benchmark"):
        table.loc[part.index, "on_front"] = [_on_front(row, part) for row in part.itertuples()]
    return table


def _on_front(row: Any, part: pd.DataFrame) -> bool:
    no_worse = (part["normalized_accuracy"] >= row.normalized_accuracy) & (part["storage_gb"] <= row.storage_gb)
    better = (part["normalized_accuracy"] > row.normalized_accuracy) | (part["storage_gb"] < row.storage_gb)
    return not (no_worse & better).any()


def draw(data: pd.DataFrame, height: float = 2.8) -> Figure:
    """A panel per benchmark: a marker per method, and the front as a step line.

    ``data``: what `fronts` returns; ``height``: of a panel, inches.
    """
    titles = data["method"].map(style.title_of) + data["at_least"].map({True: " (stores more)", False: ""})
    labels = {"xlabel": f"stored bits (Gb)\n{style.SIDE_BY_SIDE}", "ylabel": "normalised accuracy (%)"}
    figure, panels = style.panels(
        data.assign(label=titles), ["benchmark"], columns=2, height=height, sharey=True, **labels
    )
    for panel, part in panels:
        front = part[part["on_front"]].sort_values("storage_gb")
        panel.step(
            front["storage_gb"], front["normalized_accuracy"],
            where="post", color=style.BLACK, linewidth=0.8, label="Pareto front",
        )  # fmt: skip
        style.points(panel, part, "storage_gb")
    style.legend(figure)
    return figure
