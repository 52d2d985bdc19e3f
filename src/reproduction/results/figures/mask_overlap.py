"""Beyond the paper: overlap of each pair of tasks' masks, as a clustered heat map."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from reproduction.results.figures import FigureSpec, ResultFiles, style
from reproduction.tasks.titles import title

FIGURE = FigureSpec(title="Overlap of the masks of each pair of tasks", place=100, views=("mask_statistics",))

METHOD = "tall_mask_task_arithmetic"


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark and pair of tasks: the Jaccard index of their masks.

    All benchmarks have the same order of tasks; the clustering of the largest benchmark with a task places it.
    """
    table = results.each("mask_statistics/overlap.csv").query("method == @METHOD").drop(columns="method")
    rows: dict[str, int] = {}
    for benchmark in sorted(results.benchmarks, key=lambda name: -len(results.benchmarks[name])):
        part = table[table["benchmark"] == benchmark]
        for task in clustered(part.pivot(index="task", columns="other", values="jaccard")):
            rows.setdefault(task, len(rows))
    table = table.assign(row=table["task"].map(rows), column=table["other"].map(rows))
    table = table.sort_values(["row", "column"], kind="stable")
    parts = [table[table["benchmark"] == benchmark] for benchmark in results.benchmarks]
    return pd.concat(parts)[["benchmark", "task", "other", "jaccard"]].reset_index(drop=True)


def clustered(similarity: pd.DataFrame) -> list[str]:
    """Tasks in the optimal leaf order of average-linkage clustering.

    ``similarity``: symmetric matrix with values in [0, 1] and 1 on the diagonal; rows and columns are tasks.
    """
    names = [str(name) for name in similarity.index]
    if len(names) < 3:
        return names
    distance = squareform(1 - similarity.to_numpy(), checks=False)
    return [names[leaf] for leaf in leaves_list(linkage(distance, "average", optimal_ordering=True))]


def draw(data: pd.DataFrame) -> Figure:
    figure, panels = style.panels(data, ["benchmark"], columns=2, height=3.65)
    apart = data[data["task"] != data["other"]]["jaccard"]
    low, high = (apart.min(), apart.max()) if len(apart) else (0.0, 1.0)
    for panel, part in panels:
        tasks = list(dict.fromkeys(part["task"]))
        matrix = part.pivot(index="task", columns="other", values="jaccard").loc[tasks, tasks]
        shown = np.where(np.eye(len(tasks)), np.nan, matrix)
        image = panel.imshow(shown, cmap=style.SEQUENTIAL, vmin=low, vmax=high, interpolation="nearest")
        labels = [title(task) for task in tasks]
        panel.set_xticks(range(len(tasks)), labels, rotation=90)
        panel.set_yticks(range(len(tasks)), labels)
        panel.grid(visible=False)
    figure.colorbar(
        image, ax=figure.axes, location="bottom", shrink=0.5, aspect=40, label="Jaccard index of the two masks"
    )
    return figure
