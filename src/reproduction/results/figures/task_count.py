"""Figure 5: normalised accuracy and size against the number of tasks, for subsets of the tasks."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reproduction.results.figures import FigureSpec, ResultFiles, style
from reproduction.results.typesetting import byte_unit

FIGURE = FigureSpec(
    title="Accuracy and size against the number of tasks",
    place=50,
    paper="Figure 5",
    views=("tables", "subsets"),
    scope="largest",
)

WITH_BAND = ("task_arithmetic", "tall_mask_task_arithmetic")  # more bands would hide each other


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per method and n: mean and sample standard deviation over the orders, and storage in 1e9 bits."""
    groups = results.each("subsets/accuracy.csv").groupby(["benchmark", "method", "n"], sort=False)
    table = groups.agg(
        orders=("order", "nunique"),
        normalized_accuracy_mean=("normalized_accuracy", "mean"),
        normalized_accuracy_std=("normalized_accuracy", "std"),
        formula_gbit=("formula_gbit", "first"),
    )
    return table.round(4).reset_index()


def draw(data: pd.DataFrame) -> Figure:
    unit, factor = byte_unit(data["formula_gbit"])
    figure, (accuracy, size) = style.empty_panels(2, columns=2, height=2.6)
    for method, rows in style.groups(data, "method"):
        line = style.look_of(method).line | {"markevery": max(1, len(rows) // 10), "label": style.title_of(method)}
        mean, spread = rows["normalized_accuracy_mean"], rows["normalized_accuracy_std"].fillna(0)
        accuracy.plot(rows["n"], mean, **line)
        if method in WITH_BAND:
            accuracy.fill_between(rows["n"], mean - spread, mean + spread, color=line["color"], alpha=0.2, linewidth=0)
        size.plot(rows["n"], factor * rows["formula_gbit"], **line)
    accuracy.plot([], [], color=style.LIGHT, linewidth=8, label="± one standard deviation\nover orders of tasks")
    accuracy.set(title="Accuracy", ylabel="normalised accuracy (%)")
    size.set(title="Size", ylabel=f"size ({unit})", ylim=(0, None))
    for panel in (accuracy, size):
        panel.set_xlabel("number of tasks")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    style.legend(figure)
    return figure
