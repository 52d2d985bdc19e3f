"""Beyond the paper: accuracy of merges on tasks that were left out of them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(
    title="Accuracy on held-out tasks, relative to zero-shot", place=150, views=("held_out",), scope="smallest"
)


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, merge and held-out task: test accuracy in percent, and gain over zero-shot in points."""
    table = results.each("held_out.csv").query("split == 'test'")
    zeroshot = table[table["method"] == "zeroshot"].set_index(["benchmark", "task"])["accuracy"]
    merges = table[table["method"] != "zeroshot"]
    before = zeroshot.loc[list(zip(merges["benchmark"], merges["task"], strict=True))].to_numpy()
    gain = (merges["accuracy"] - before).round(4)
    return merges.assign(gain=gain)[["benchmark", "method", "task", "accuracy", "gain"]].reset_index(drop=True)


def draw(data: pd.DataFrame) -> Figure:
    label = "gain over zero-shot (points)"
    figure, panels = style.panels(data, ["benchmark"], columns=1, height=3.4, ylabel=label)
    for panel, part in panels:
        for index, (_, rows) in enumerate(style.groups(part, "method")):
            panel.bar(index, rows["gain"].mean(), width=0.7, color=style.LIGHT, edgecolor=style.GREY)
            panel.plot([index] * len(rows), rows["gain"], color=style.BLUE, marker="_", markersize=9, linestyle="none")
        panel.axhline(0, color=style.BLACK, linewidth=0.8)
        names = [style.title_of(str(method)) for method in part["method"].unique()]
        panel.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    return figure
