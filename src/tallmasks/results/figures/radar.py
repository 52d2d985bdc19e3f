"""Figure 4 and its appendix: the accuracy of every task under the main methods."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import benchmark_title, title

FIGURE = FigureSpec(
    title="Accuracy per task",
    place=40,
    paper="Figures 4 and 9 to 11",
    views=("benchmark",),
)

METHODS = (
    "fine_tuned",
    "tall_mask_task_arithmetic",
    "consensus_task_arithmetic",
    "ties",
    "task_arithmetic",
    "zeroshot",
)
"""Those of the paper, the best first."""


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and task: test accuracy in percent."""
    table = results.each("per_task.csv").query("split == 'test' and method in @METHODS")
    table = table.assign(place=table["method"].map({name: place for place, name in enumerate(METHODS)}))
    table = table.sort_values("place", kind="stable")
    parts = [table[table["benchmark"] == benchmark] for benchmark in results.benchmarks]
    return pd.concat(parts)[["benchmark", "method", "task", "accuracy"]].reset_index(drop=True)


def draw(data: pd.DataFrame) -> Figure:
    """A radar per benchmark: an axis per task, a closed line per method."""
    parts = list(style.groups(data, "benchmark"))
    figure, axes = style.panels(len(parts), columns=2, height=3.4, subplot_kw={"projection": "polar"})
    for panel, (benchmark, part) in zip(axes, parts, strict=True):
        assert isinstance(panel, PolarAxes)
        tasks = list(dict.fromkeys(part["task"]))
        angles = 2 * np.pi * np.arange(len(tasks)) / len(tasks)
        for method, rows in style.groups(part, "method"):
            closed = [*rows["accuracy"], rows["accuracy"].iloc[0]]
            panel.plot([*angles, angles[0]], closed, label=style.title_of(method), **style.look(method).line)
        panel.set_title(benchmark_title(benchmark, len(tasks)), pad=20)
        panel.set_ylim(0, 100)
        panel.set_theta_zero_location("N")
        panel.set_xticks(angles, [])
        panel.set_yticks([20, 40, 60, 80], ["20", "40", "60", "80"], color=style.GREY, fontsize=6)
        panel.set_rlabel_position(180 / len(tasks))
        for angle, task in zip(angles, tasks, strict=True):
            across, up = -np.sin(angle), np.cos(angle)  # where the label lies, seen from the centre
            panel.text(
                angle,
                106,
                title(task),
                fontsize=6.5,
                ha="center" if abs(across) < 0.1 else "left" if across > 0 else "right",
                va="center" if abs(up) < 0.9 else "bottom" if up > 0 else "top",
            )
    style.legend(figure, axes, columns=len(METHODS))
    return figure
