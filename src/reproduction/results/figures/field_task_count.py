"""Beyond the paper: accuracy of the best methods against the number of tasks."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(title="Accuracy of the best methods against the number of tasks", place=140, views=("field",))

BEST = 6  # methods per section
TITLES = {"merging": "One model for all tasks", "compression": "One model per task"}


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark and method, for the methods of each section with the best mean over the benchmarks."""
    table = results.with_tasks(results.each("field.csv").query("method != 'fine_tuned'"))
    means = table.groupby(["section", "method"], sort=False)["normalized_accuracy"].mean()
    best = means.sort_values(ascending=False, kind="stable").groupby("section", sort=False).head(BEST)
    parts = [
        table[(table["section"] == section) & (table["method"] == method)].sort_values("tasks", kind="stable")
        for wanted in TITLES
        for section, method in best.index
        if section == wanted
    ]
    return pd.concat(parts)[["section", "method", "benchmark", "tasks", "normalized_accuracy"]].reset_index(drop=True)


def draw(data: pd.DataFrame) -> Figure:
    labels = {"xlabel": "number of tasks", "ylabel": "normalised accuracy (%)"}
    figure, panels = style.panels(data, ["section"], columns=2, height=4.0, **labels)
    for panel, part in panels:
        style.line_per_method(panel, part, "tasks", "normalized_accuracy")
        panel.set_title(TITLES[part["section"].iloc[0]])
        panel.set_xticks(sorted(part["tasks"].unique()))
        panel.margins(x=0.08)
    style.legend(figure)
    return figure
