"""Figure 4 and its appendix: the accuracy of every task under the main methods."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.projections.polar import PolarAxes

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import title

FIGURE = FigureSpec(title="Accuracy per task", place=40, paper="Figures 4 and 9 to 11", views=("tables",))

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
    figure, panels = style.panels(data, ["benchmark"], columns=2, height=3.2, subplot_kw={"projection": "polar"})
    for panel, part in panels:
        assert isinstance(panel, PolarAxes)
        tasks = list(dict.fromkeys(part["task"]))
        angles = 2 * np.pi * np.arange(len(tasks)) / len(tasks)
        for method, rows in style.groups(part, "method"):
            closed = [*rows["accuracy"], rows["accuracy"].iloc[0]]
            line = style.look_of(method).line
            panel.plot([*angles, angles[0]], closed, label=style.title_of(method), markersize=3, **line)
        panel.set_title(panel.get_title(), pad=18)
        panel.set_ylim(0, 100)
        panel.set_theta_zero_location("N")
        panel.set_xticks(angles, [])
        panel.set_yticks([25, 50, 75], [])
        for accuracy in (25, 50, 75):  # over the lines, between the first two tasks
            text = panel.text(angles[1] / 2, accuracy, str(accuracy), fontsize=7, ha="center", va="center")
            text.set(zorder=5, path_effects=[withStroke(linewidth=2, foreground="white")])
        for angle, task in zip(angles, tasks, strict=True):
            across, up = -np.sin(angle), np.cos(angle)  # where the label lies, seen from the centre
            panel.text(
                angle,
                106,
                title(task),
                fontsize=8,
                ha="center" if abs(across) < 0.1 else "left" if across > 0 else "right",
                va="center" if abs(up) < 0.9 else "bottom" if up > 0 else "top",
            )
    style.legend(figure)
    return figure
