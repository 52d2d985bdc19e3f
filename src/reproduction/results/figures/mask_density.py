"""Beyond the paper: density of the masks by layer and by kind of tensor."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style
from reproduction.tasks.titles import benchmark_title

FIGURE = FigureSpec(title="Mask density by layer and by kind of tensor", place=90, views=("mask_statistics",))

NAMES = {"layer": "layer", "kind": "kind of tensor"}
ENDS = {"before": "input", "after": "output"}


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per method, benchmark and layer or kind of tensor: mean density over the tasks, percent."""
    table = results.each("mask_statistics/tensors.csv")
    rows = []
    for by in ("layer", "kind"):
        for (method, benchmark, value), part in table.groupby(["method", "benchmark", by], sort=False):
            percentage = 100 * np.average(part["density"], weights=part["weights"])
            rows.append((method, benchmark, by, str(value), int(part["weights"].sum()), round(percentage, 4)))
    columns = ["method", "benchmark", "by", "value", "weights", "percentage"]
    return results.with_tasks(pd.DataFrame(rows, columns=columns))[[*columns[:2], "tasks", *columns[2:]]]


def draw(data: pd.DataFrame) -> Figure:
    columns = data["method"].nunique()
    labels = {"ylabel": "weights selected (%)"}
    figure, panels = style.panels(data, ["by", "method"], columns, height=2.4, sharey=True, **labels)
    for panel, part in panels:
        by = part["by"].iloc[0]
        values = list(dict.fromkeys(part["value"].astype(str)))
        for index, (benchmark, rows) in enumerate(style.groups(part, "benchmark")):
            line = style.SERIES[index % len(style.SERIES)].line
            line["label"] = benchmark_title(benchmark, int(rows["tasks"].iloc[0]))
            if by == "kind":
                line["linestyle"] = "none"
            panel.plot([values.index(str(value)) for value in rows["value"]], rows["percentage"], **line)
        names = [_layer(value) if by == "layer" else value for value in values]
        panel.set_xticks(range(len(values)), names, rotation=40, ha="right", rotation_mode="anchor")
        panel.set_title(f"{panel.get_title()}, by {NAMES[by]}")
        panel.margins(x=0.06)
    style.legend(figure)
    return figure


def _layer(value: str) -> str:
    if value in ENDS:
        return ENDS[value]
    return f"decoder {int(value[1:]) + 1}" if value.startswith("d") else f"block {int(value) + 1}"
