"""Figures 4 and 9 to 11: the accuracy of the main methods on every task."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(title="Accuracy by task", place=40, paper="Figures 4 and 9 to 11", views=("tables",))

MERGES = {"consensus_task_arithmetic": -0.22, "ties": 0, "task_arithmetic": 0.22}
"""Vertical offsets of the markers, whose values are often equal."""
METHODS = ("fine_tuned", "tall_mask_task_arithmetic", *MERGES, "zeroshot")


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and task: test accuracy in percent."""
    table = results.each("per_task.csv").query("split == 'test' and method in @METHODS")
    table = table.assign(place=table["method"].map({name: place for place, name in enumerate(METHODS)}))
    table = table.sort_values("place", kind="stable")
    parts = [table[table["benchmark"] == benchmark] for benchmark in results.benchmarks]
    return pd.concat(parts)[["benchmark", "method", "task", "accuracy"]].reset_index(drop=True)


def draw(data: pd.DataFrame) -> Figure:
    counts = data.groupby("benchmark", sort=False)["task"].nunique()
    figure, panels = style.panels(
        data, ["benchmark"], columns=1, width=style.SCREEN, height=0.8 + 0.24 * counts.mean(),
        height_ratios=counts + 0.4, ylabel="task, highest mean at the top",
    )  # fmt: skip
    for panel, part in panels:
        panel.set_xlabel("accuracy (%)")
        tasks = part.groupby("task")["accuracy"].mean().sort_values(kind="stable").index.astype(str).tolist()
        style.task_rows(panel, tasks)
        for method, rows in style.groups(part, "method"):
            look = style.look_of(method)
            panel.plot(
                rows["accuracy"], [tasks.index(task) + MERGES.get(method, 0) for task in rows["task"]],
                look.marker, color=look.color, markersize=5, fillstyle="none", label=style.title_of(method),
            )  # fmt: skip
        panel.set_xlim(0, 105)
    style.legend(figure)
    return figure
