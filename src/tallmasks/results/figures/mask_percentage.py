"""Figure 2: how much of the merged vector each task's mask selects, and the accuracy that it restores."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import title

FIGURE = FigureSpec(
    title="Selected weights and masked accuracy per task", place=20, paper="Figure 2", views=("tables", "masks")
)

MASKED, BASELINE = "tall_mask_task_arithmetic", "task_arithmetic"
SELECTED = "weights selected"
LABELS = {MASKED: "normalised accuracy,\nmasked (TALL Mask + TA)", BASELINE: "normalised accuracy,\ntask arithmetic"}


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark and task; accuracies are on validation data, relative to the fine-tuned model, percent."""
    masks = results.each("masks/density.csv").query("method == @MASKED")
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
    """A panel per benchmark: bars for the masks, markers for the accuracies."""
    figure, panels = style.panels(data, ["benchmark"], columns=1, height=1.8, width=style.COLUMN, ylabel="%")
    for panel, part in panels:
        places = np.arange(len(part))
        panel.bar(places, part["mask_percentage"], 0.6, color=style.LIGHT, edgecolor=style.GREY, label=SELECTED)
        for method, column in ((MASKED, "masked"), (BASELINE, "task_arithmetic")):
            look = style.look_of(method)
            panel.plot(
                places, part[f"{column}_normalized_accuracy"],
                color=look.color, marker=look.marker, linestyle="none", label=LABELS[method],
            )  # fmt: skip
        panel.set(ylim=(0, None), yticks=range(0, 101, 25), xlim=(-0.6, len(part) - 0.4))
        panel.set_xticks(places, [title(task) for task in part["task"]], rotation=90)
        panel.grid(axis="x", visible=False)
    style.legend(figure)
    return figure
