"""Beyond the paper: the validation curves behind each scaling coefficient."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks import methods
from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import benchmark_title

FIGURE = FigureSpec(
    title="Choosing the scaling coefficient",
    place=70,
    views=("benchmark",),
)


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and alpha: normalised validation accuracy in percent, and which was chosen.

    Methods that tune something else in its place, as LiNeS its beta, are left out.
    """
    return pd.DataFrame(
        {
            "benchmark": benchmark,
            "tasks": len(results.benchmarks[benchmark]),
            "method": method,
            "scaling_coefficient": point["scaling_coefficient"],
            "normalized_accuracy": point["normalized_accuracy"],
            "chosen": point["scaling_coefficient"] == record["scaling_coefficient"],
        }
        for benchmark, selection in results.selections().items()
        for method, record in selection.items()
        if "scaling_coefficient" in record and methods.get(method).tuned is None
        for point in record["validation"]
    )


def draw(data: pd.DataFrame) -> Figure:
    """A panel per benchmark, a line per method, a ring around what was chosen."""
    parts = list(style.groups(data, "benchmark"))
    figure, axes = style.panels(len(parts), columns=3, height=2.6, sharey=True)
    for panel, (benchmark, part) in zip(axes, parts, strict=True):
        for method, rows in style.groups(part, "method"):
            line = style.look(method).line
            panel.plot(rows["scaling_coefficient"], rows["normalized_accuracy"], label=style.title_of(method), **line)
            best = rows[rows["chosen"]]
            panel.plot(
                best["scaling_coefficient"], best["normalized_accuracy"],
                "o", markersize=9, markerfacecolor="none", markeredgecolor=line["color"],
            )  # fmt: skip
        panel.set_title(benchmark_title(benchmark, int(part["tasks"].iloc[0])))
        panel.set_xlabel("scaling coefficient α")
    axes[0].set_ylabel("normalised validation accuracy (%)")
    style.legend(figure, axes, columns=4)
    return figure
