"""Figures 6 and 7: accuracy against the threshold k of consensus merging, with alpha chosen at each k."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(
    title="Accuracy against the consensus threshold", place=60, paper="Figures 6 and 7", views=("thresholds",)
)


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and k; accuracies in percent."""
    return results.with_tasks(results.each("thresholds/thresholds.csv"))


def draw(data: pd.DataFrame) -> Figure:
    labels = {
        "xlabel": "threshold k: a weight is kept if\nthe masks of at least k tasks select it",
        "ylabel": "normalised accuracy (%)",
    }
    figure, panels = style.panels(data, ["benchmark"], columns=1, height=1.6, width=style.COLUMN, **labels)
    for panel, part in panels:
        style.line_per_method(panel, part, "k", "normalized_accuracy")
        tasks = int(part["tasks"].iloc[0])
        panel.axvline(tasks + 0.5, color=style.GREY, linestyle=":", linewidth=1)
        panel.annotate(
            "no weight is kept: zero-shot → ", (tasks + 0.5, 1), xycoords=("data", "axes fraction"),
            ha="right", va="top", fontsize=7, color="#505050",
        )  # fmt: skip
        panel.set_xticks(range(0, tasks + 2, 1 + tasks // 16))
        panel.margins(y=0.15)
    panels[0][0].legend(loc="lower left")
    return figure
