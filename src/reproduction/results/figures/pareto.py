"""Beyond the paper: accuracy against size, with the Pareto front."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from reproduction.results.figures import FigureSpec, ResultFiles, style
from reproduction.results.typesetting import byte_unit
from tallmasks import methods

FIGURE = FigureSpec(title="Accuracy against size", place=110, views=("tables",))

TICKS = (0, 20, 40, 60, 70, 80, 90, 95, 100)


def data(results: ResultFiles) -> pd.DataFrame:
    return fronts(results, "table.csv")


def fronts(results: ResultFiles, file: str) -> pd.DataFrame:
    """One row per benchmark and method: normalised test accuracy in percent, storage in 1e9 bits, and whether it is
    Pareto optimal."""
    table = results.each(file)[["benchmark", "method", "normalized_accuracy", "formula_gbit"]]
    stores_more = [methods.get(name).stores_more for name in table["method"]]
    table = results.with_tasks(table).assign(at_least=stores_more, on_front=False)
    for _, part in table.groupby("benchmark"):
        table.loc[part.index, "on_front"] = [_on_front(row, part) for row in part.itertuples()]
    return table


def _on_front(row: Any, part: pd.DataFrame) -> bool:
    no_worse = (part["normalized_accuracy"] >= row.normalized_accuracy) & (part["formula_gbit"] <= row.formula_gbit)
    better = (part["normalized_accuracy"] > row.normalized_accuracy) | (part["formula_gbit"] < row.formula_gbit)
    return not (no_worse & better).any()


def draw(data: pd.DataFrame) -> Figure:
    unit, factor = byte_unit(data["formula_gbit"])
    data = data.assign(size=factor * data["formula_gbit"])
    labels = {"xlabel": f"size ({unit})", "ylabel": "normalised accuracy (%)"}
    lines, panel_count = data["method"].nunique() + 1, data["benchmark"].nunique()
    height = max(3.2, 0.185 * lines / panel_count)  # of a panel, so that the legend fits
    figure, panels = style.panels(data, ["benchmark"], columns=1, height=height, sharey=True, **labels)
    # the axis is stretched at high accuracies, where methods are close to each other
    lowest, highest = data["normalized_accuracy"].min(), max(100, data["normalized_accuracy"].max())
    end = highest + 12
    stretched = (lambda y: -np.log(np.maximum(end - y, 1e-3)), lambda stretch: end - np.exp(-stretch))
    panels[0][0].set_yscale("function", functions=stretched)
    panels[0][0].set(ylim=(lowest - 8, highest + 1.5), yticks=[tick for tick in TICKS if lowest - 8 < tick])
    panels[0][0].yaxis.set_major_formatter("{x:g}")
    for panel, part in panels:
        front = part[part["on_front"]].sort_values("size").set_index("size")["normalized_accuracy"]
        panel.step(front.index, front, where="post", color=style.GREY, linewidth=0.8, label="Pareto front")
        for row in part.to_dict("records"):
            look, more = style.look_of(row["method"]), " (or more)" if row["at_least"] else ""
            panel.plot(
                row["size"], row["normalized_accuracy"], look.marker, color=look.color, markersize=5.5,
                fillstyle="none", label=style.title_of(row["method"]) + more,
            )  # fmt: skip
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
    style.legend(figure)
    return figure
