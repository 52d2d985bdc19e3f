"""Figures 3 and 8: in how many tasks' masks the weights are, for task arithmetic and TIES."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(title="Mask agreement profiles", place=30, paper="Figures 3 and 8", views=("tables",))

KINDS = {
    "catastrophic": (style.GREY, "////", "catastrophic (n = 0)"),
    "selfish": (style.ORANGE, "xxxx", "selfish (n = 1)"),
    "general": (style.SKY, "", "general"),
    "universal": (style.BLUE, "....", "universal (n = all)"),
}
"""Colour, hatching and label."""
ZERO = ("#ffffff", "----", "merged value 0:\nmasks have no effect")


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and n: kind and share of the weights, and of those with merged value 0; percent."""
    table = results.with_tasks(results.each("agreement.csv"))
    kinds = [
        {0: "catastrophic", tasks: "universal", 1: "selfish"}.get(n, "general")
        for n, tasks in zip(table["n"], table["tasks"], strict=True)
    ]
    shares = {
        "percentage": (100 * table["fraction"]).round(4),
        "merged_zero_percentage": (100 * table["merged_zero"]).round(4),
    }
    return table.assign(kind=kinds, **shares)[["benchmark", "method", "n", "kind", *shares, "tasks"]]


def draw(data: pd.DataFrame) -> Figure:
    columns = data["method"].nunique()
    labels = {"xlabel": "number n of masks that\nselect the weight", "ylabel": "weights (%)"}
    figure, panels = style.panels(
        data, ["benchmark", "method"], columns, height=1.55, width=style.COLUMN, sharey="row", **labels
    )
    tallest = data.groupby("benchmark")["percentage"].max()
    for panel, part in panels:
        tasks = int(part["tasks"].iloc[0])
        zero = part["merged_zero_percentage"]
        for kind, rows in style.groups(part, "kind"):
            _bars(panel, rows["n"], rows["percentage"] - zero[rows.index], KINDS[kind])
        _bars(panel, part["n"], zero, ZERO, bottom=part["percentage"] - zero)
        panel.set_xticks(range(0, tasks + 1, max(1, tasks // 5)))
        panel.grid(axis="x", visible=False)
        panel.set_ylim(0, 1.08 * tallest[part["benchmark"].iloc[0]])
    style.legend(figure)
    return figure


def _bars(panel: Axes, n: pd.Series, heights: pd.Series, look: tuple[str, str, str], **settings: Any) -> None:
    color, hatch, label = look
    panel.bar(n, heights, 0.8, color=color, hatch=hatch, edgecolor="#404040", label=label, **settings)
