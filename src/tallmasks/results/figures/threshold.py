"""Figure 6 and its appendix: accuracy against the threshold k of consensus merging, alpha tuned at each k."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import benchmark_title

FIGURE = FigureSpec(
    title="Accuracy against the consensus threshold",
    place=60,
    paper="Figures 6 and 7",
    views=("thresholds",),
)


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and k: chosen alpha and test accuracies in percent."""
    table = results.each("thresholds/thresholds.csv")
    return table.assign(tasks=table["benchmark"].map({name: len(tasks) for name, tasks in results.benchmarks.items()}))


def draw(data: pd.DataFrame) -> Figure:
    """A panel per benchmark, a line per method; k = 0 is the merge itself, k > T the pretrained model."""
    parts = list(style.groups(data, "benchmark"))
    figure, axes = style.panels(len(parts), columns=1, height=1.9)
    for panel, (benchmark, part) in zip(axes, parts, strict=True):
        for method, rows in style.groups(part, "method"):
            panel.plot(rows["k"], rows["normalized_accuracy"], label=style.title_of(method), **style.look(method).line)
        tasks = int(part["tasks"].iloc[0])
        panel.axvline(tasks + 0.5, color=style.GREY, linestyle=":", linewidth=1)
        panel.annotate(
            "no weight is left: zero-shot ", (tasks + 0.5, 1), xycoords=("data", "axes fraction"), ha="right", va="top",
            fontsize=6.5, color="#505050",
        )  # fmt: skip
        panel.set(title=benchmark_title(benchmark, tasks), ylabel="normalised accuracy (%)")
        panel.set_xticks(sorted(part["k"].unique()))
        panel.margins(y=0.15)
    axes[-1].set_xlabel("threshold k: a weight is kept if the masks of at least k tasks hold it")
    style.legend(figure, axes, columns=2)
    return figure
