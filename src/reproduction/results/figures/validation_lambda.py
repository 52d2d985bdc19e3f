"""Beyond the paper: the validation curves from which each mask lambda is chosen."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(title="Choice of the mask lambdas", place=80, views=("tables",))


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method, task and lambda."""
    return pd.DataFrame(
        {
            "benchmark": benchmark,
            "method": method,
            "task": task,
            "mask_lambda": point["mask_lambda"],
            "normalized_accuracy": point["normalized_accuracy"],
            "chosen": point["mask_lambda"] == chosen["mask_lambda"],
        }
        for benchmark, selection in results.selections().items()
        for method, record in selection.items()
        if "validation" not in record
        for task, chosen in record.items()
        for point in chosen["validation"]
    )


def draw(data: pd.DataFrame) -> Figure:
    columns = data["method"].nunique()
    labels = {"xlabel": "mask lambda", "ylabel": "normalised\nvalidation accuracy (%)"}
    figure, panels = style.panels(
        data, ["benchmark", "method"], columns, height=1.9, sharex=True, sharey=True, **labels
    )
    for panel, part in panels:
        for _, rows in style.groups(part, "task"):
            panel.plot(rows["mask_lambda"], rows["normalized_accuracy"], color="#b0b0b0", linewidth=0.7, label="a task")
        best = part[part["chosen"]]
        panel.plot(
            best["mask_lambda"], best["normalized_accuracy"],
            "o", markersize=3.5, color="#606060", label="chosen mask lambda",
        )  # fmt: skip
        mean = part.groupby("mask_lambda")["normalized_accuracy"].mean()
        line = style.look_of(part["method"].iloc[0]).line
        panel.plot(
            mean.index, mean, color=line["color"], marker=line["marker"], linewidth=2, label="mean over the tasks"
        )
        panel.set_xticks(sorted(part["mask_lambda"].unique()))
    style.legend(figure)
    return figure
