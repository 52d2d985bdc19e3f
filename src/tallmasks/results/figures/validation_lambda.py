"""Beyond the paper: the validation curves behind each mask lambda."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import benchmark_title

FIGURE = FigureSpec(
    title="Choosing the mask lambdas",
    place=80,
    views=("benchmark",),
)


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method, task and lambda: normalised validation accuracy in percent, and the choice."""
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
        if "scaling_coefficient" not in record
        for task, chosen in record.items()
        for point in chosen["validation"]
    )


def draw(data: pd.DataFrame) -> Figure:
    """A row per method, a column per benchmark: a thin line per task with its choice as a dot, and their mean."""
    columns = data["benchmark"].nunique()
    parts = [part for method in style.groups(data, "method") for part in style.groups(method[1], "benchmark")]
    figure, axes = style.panels(len(parts), columns=columns, height=2.0, sharex=True, sharey=True)
    for index, (panel, (benchmark, part)) in enumerate(zip(axes, parts, strict=True)):
        method = part["method"].iloc[0]
        look = style.look(method)
        for _, rows in style.groups(part, "task"):
            panel.plot(rows["mask_lambda"], rows["normalized_accuracy"], color="#b0b0b0", linewidth=0.7, label="a task")
        best = part[part["chosen"]]
        panel.plot(
            best["mask_lambda"], best["normalized_accuracy"],
            "o", markersize=3.5, color="#606060", label="its mask lambda",
        )  # fmt: skip
        mean = part.groupby("mask_lambda")["normalized_accuracy"].mean()
        panel.plot(mean.index, mean, color=look.color, marker=look.marker, linewidth=2, label="mean over the tasks")
        tasks = part["task"].nunique()
        panel.set_title(f"{style.title_of(method)}, {benchmark_title(benchmark, tasks)}")
        panel.set_xticks(sorted(part["mask_lambda"].unique()))
        if index % columns == 0:
            panel.set_ylabel("normalised\nvalidation accuracy (%)")
        if index >= len(parts) - columns:
            panel.set_xlabel("mask lambda")
    style.legend(figure, axes[0], columns=3)
    return figure
