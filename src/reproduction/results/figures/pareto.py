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

NAMED = ("zeroshot", "task_arithmetic", "consensus_task_arithmetic", "magnitude_pruning", "tall_mask_task_arithmetic")
"""Methods that are named even if they are not on the front."""
PANEL, LEFT, RIGHT = 6.0, 1.1, 1.9
"""Width of a panel, and the space for names at its left and right, in inches."""


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
    figure, panels = style.panels(data, ["benchmark"], columns=1, height=2.2, sharey=True, **labels)
    for panel, part in panels:
        front = part[part["on_front"]].sort_values("size").set_index("size")["normalized_accuracy"]
        panel.step(front.index, front, where="post", color=style.GREY, linewidth=0.8, label="Pareto front")
        x, y, named = part["size"], part["normalized_accuracy"], part["on_front"] | part["method"].isin(NAMED)
        panel.plot(x[~named], y[~named], ".", color=style.GREY, label="another method")
        for across, up, method in zip(x[named], y[named], part["method"][named], strict=True):
            look = style.look_of(method)
            panel.plot(across, up, look.marker, color=look.color, markersize=5.5, fillstyle="none")
        panel.margins(y=0.15)
        panel.set_xscale("log")
        per_inch = np.log(x.max() / x.min() * 1.01) / (PANEL - LEFT - RIGHT)
        panel.set_xlim(x.min() * np.exp(-LEFT * per_inch), x.max() * np.exp(RIGHT * per_inch))
        titles = part["method"].map(style.title_of) + part["at_least"].map({True: " (or more →)", False: ""})
        at = part.assign(title=titles)[named].sort_values("size")
        one_model = at["size"] < 1.01 * x.min()
        style.label_points(panel, at[one_model], "size", "normalized_accuracy", "title", side="left")
        at = at[~one_model]
        for _, near in at.groupby((np.log(at["size"]).diff() > 0.3).cumsum()):
            style.label_points(panel, near, "size", "normalized_accuracy", "title")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
    panels[0][0].legend(loc="lower right")
    return figure
