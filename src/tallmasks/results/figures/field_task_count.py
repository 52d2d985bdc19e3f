"""Beyond the paper: accuracy against the number of tasks, of the best of all methods."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(
    title="Accuracy against the number of tasks, the best of all methods",
    place=140,
    views=("field",),
)

BEST = 6
"""How many methods of each section are drawn."""
TITLES = {"merging": "One model for all tasks", "compression": "A model for each task"}


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark and method, for the methods of each section with the best normalised accuracy on average
    over the benchmarks, the best first, apart from the fine-tuned models; percent."""
    table = results.each("field.csv").query("method != 'fine_tuned'")
    table = table.assign(tasks=table["benchmark"].map({name: len(tasks) for name, tasks in results.benchmarks.items()}))
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
    """A panel per section, a line per method."""
    sections = list(style.groups(data, "section"))
    figure, axes = style.panels(len(sections), columns=2, height=4.2)
    for panel, (section, part) in zip(axes, sections, strict=True):
        for method, rows in style.groups(part, "method"):
            panel.plot(
                rows["tasks"], rows["normalized_accuracy"], label=style.title_of(method), **style.look(method).line
            )
        panel.set(title=TITLES[section], xlabel="number of tasks")
        panel.set_xticks(sorted(part["tasks"].unique()))
        panel.margins(x=0.08)
    axes[0].set_ylabel("normalised accuracy (%)")
    style.legend(figure, axes, columns=4)
    return figure
