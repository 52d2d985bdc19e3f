"""Beyond the paper: where in the network the masks select weights, by layer and by kind of tensor."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import benchmark_title

FIGURE = FigureSpec(
    title="Mask density per layer and kind of tensor",
    place=90,
    views=("masks",),
)


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per method, benchmark and layer, or kind of tensor: the share of its weights in a mask, in percent,
    averaged over the tasks."""
    table = results.each("masks/tensors.csv")
    tasks = {name: len(tasks) for name, tasks in results.benchmarks.items()}
    rows = []
    for by in ("layer", "kind"):
        for (method, benchmark, value), part in table.groupby(["method", "benchmark", by], sort=False):
            percentage = 100 * np.average(part["density"], weights=part["weights"])
            rows.append(
                (method, benchmark, tasks[str(benchmark)], by, str(value), int(part["weights"].sum()), percentage)
            )
    columns = ["method", "benchmark", "tasks", "by", "value", "weights", "percentage"]
    return pd.DataFrame(rows, columns=columns).round({"percentage": 4})


def draw(data: pd.DataFrame) -> Figure:
    """A row per method: the layers on the left, the kinds of tensor on the right; a series per benchmark."""
    rows = list(style.groups(data, "method"))
    figure, axes = style.panels(2 * len(rows), columns=2, height=2.5, sharey="row")
    for row, (method, of_method) in enumerate(rows):
        for panel, (by, part) in zip(axes[2 * row : 2 * row + 2], style.groups(of_method, "by"), strict=True):
            values = list(dict.fromkeys(part["value"]))
            places = {value: place for place, value in enumerate(values)}
            for index, (benchmark, series) in enumerate(style.groups(part, "benchmark")):
                look = style.series(index)
                panel.plot(
                    series["value"].map(places),
                    series["percentage"],
                    color=look.color,
                    marker=look.marker,
                    linestyle=look.dashes if by == "layer" else "none",
                    label=benchmark_title(benchmark, int(series["tasks"].iloc[0])),
                )
            crowded = by == "kind" or len(values) > 12
            panel.set_xticks(
                range(len(values)), values, rotation=40 if crowded else 0, ha="right" if crowded else "center"
            )
            panel.set_title(f"{style.title_of(method)}, by {'layer' if by == 'layer' else 'kind of tensor'}")
            panel.margins(x=0.06)
        axes[2 * row].set_ylabel("weights selected (%)")
    style.legend(figure, axes[0], columns=4)
    return figure
