"""Figure 2: the share of weights that each task's mask selects, and the accuracy with and without the mask."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style
from reproduction.tasks.titles import benchmark_title

FIGURE = FigureSpec(
    title="Share of selected weights and masked accuracy by task",
    place=20,
    paper="Figure 2",
    views=("tables", "mask_statistics"),
)

MASKED, BASELINE = "tall_mask_task_arithmetic", "task_arithmetic"


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark and task; normalised accuracies on validation data, percent."""
    masks = results.each("mask_statistics/density.csv").query("method == @MASKED")
    scores = results.each("per_task.csv").query("split == 'validation'")
    scores = scores.pivot(index=["benchmark", "task"], columns="method", values="normalized_accuracy")
    table = masks.join(scores[[MASKED, BASELINE]], on=["benchmark", "task"])
    columns = {
        "mask_percentage": (100 * table["density"]).round(4),
        "masked_normalized_accuracy": table[MASKED],
        "task_arithmetic_normalized_accuracy": table[BASELINE],
    }
    return table.assign(**columns)[["benchmark", "task", "mask_lambda", *columns]].reset_index(drop=True)


def draw(data: pd.DataFrame) -> Figure:
    sizes = data.groupby("benchmark", sort=False).size()
    figure, axes = style.empty_panels(
        2 * len(sizes), columns=2, height=2.1, width=style.COLUMN, sharex="col", sharey="row", height_ratios=sizes
    )
    for left, right, (benchmark, part) in zip(axes[::2], axes[1::2], style.groups(data, "benchmark"), strict=True):
        part = part.sort_values("task_arithmetic_normalized_accuracy")
        positions = np.arange(len(part))
        left.barh(positions, part["mask_percentage"], 0.6, color=style.LIGHT, edgecolor=style.GREY)
        for method, column in ((MASKED, "masked"), (BASELINE, "task_arithmetic")):
            look = style.look_of(method)
            right.plot(
                part[f"{column}_normalized_accuracy"], positions,
                look.marker, color=look.color, label=style.title_of(method),
            )  # fmt: skip
        style.task_rows(left, part["task"].tolist())
        left.set_title(benchmark_title(benchmark, len(part)))
    right.set_xlim(0, max(105, 1.03 * data["masked_normalized_accuracy"].max()))
    left.set_xlabel("weights in the mask (%)")
    right.set_xlabel("normalised accuracy (%)")
    style.legend(figure)
    return figure
