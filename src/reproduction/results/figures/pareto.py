"""Beyond the paper: accuracy against size, with the Pareto front."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from reproduction.results.figures import FigureSpec, ResultFiles, overview, style
from reproduction.results.typesetting import byte_unit
from tallmasks import methods

FIGURE = FigureSpec(title="Accuracy against size", place=110, views=("tables",))

TICKS = (0, 20, 40, 60, 70, 80, 90, 95, 100)
MOST = 8
"""More names would not be readable on a phone: the front's, then those of the overview."""
OTHER = "another method"
LOOKS = {**style.KINDS, OTHER: style.Look(style.GREY, ".")}


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
    data = pd.concat([_named(part) for _, part in data.groupby("benchmark", sort=False)])
    labels = {"xlabel": f"size ({unit}), logarithmic", "ylabel": "normalised accuracy (%)"}
    figure, panels = style.panels(data, ["benchmark"], columns=1, height=3.3, width=style.SCREEN, sharey=True, **labels)
    # the axis is stretched at high accuracies, where methods are close to each other
    lowest, highest = data["normalized_accuracy"].min(), max(100, data["normalized_accuracy"].max())
    end = highest + 12
    stretched = (lambda y: -np.log(np.maximum(end - y, 1e-3)), lambda stretch: end - np.exp(-stretch))
    panels[0][0].set_yscale("function", functions=stretched)
    panels[0][0].set(ylim=(lowest - 8, highest + 2), yticks=[tick for tick in TICKS if lowest - 8 < tick])
    panels[0][0].yaxis.set_major_formatter("{x:g}")
    for panel, part in panels:
        front = part[part["on_front"]].sort_values("size").set_index("size")["normalized_accuracy"]
        panel.step(front.index, front, where="post", color=style.GREY, linewidth=0.8, label="Pareto front")
        for kind, look in LOOKS.items():
            at = part.loc[part["kind"] == kind, ["size", "normalized_accuracy"]].to_numpy().T
            panel.plot(*at, look.marker, color=look.color, label=kind, zorder=2 + 0.1 * (kind != OTHER))
        panel.set_xscale("log")
        panel.margins(x=0.1)
        is_short = part["size"].max() < 10 * part["size"].min()
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7) if is_short else (1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_locator(LogLocator(subs=range(1, 10)))
        panel.xaxis.set_minor_formatter(NullFormatter())
    style.legend(figure)
    for panel, part in panels:
        style.label_near(figure, panel, part, "size", "normalized_accuracy", "name")
    return figure


def _named(part: pd.DataFrame) -> pd.DataFrame:
    """A benchmark's methods with `name`, empty for those that are only a dot, and `kind`."""
    first = dict.fromkeys([*part["method"][part["on_front"]], *overview.NAMES])
    named = [method for method in first if method in set(part["method"])][:MOST]
    titles = part["method"].map(style.title_of) + part["at_least"].map({True: " (or more)", False: ""})
    shown = part["method"].isin(named)
    return part.assign(name=titles.where(shown, ""), kind=part["method"].map(style.kind_of).where(shown, OTHER))
