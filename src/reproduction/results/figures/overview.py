"""Beyond the paper: accuracy and size of five methods against the number of tasks."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style
from reproduction.results.typesetting import byte_unit

FIGURE = FigureSpec(title="Accuracy and size of five methods", place=105, views=("tables",))

NAMES = {
    "fine_tuned": "fine-tuned",
    "tall_mask_ties": "TALL-masks",
    "stochastic_rounding": "compress",
    "consensus_task_arithmetic": "consensus",
    "task_arithmetic": "task arithmetic",
    "zeroshot": "base",
}
"""Stochastic rounding is the default of `tallmasks compress`. Of the base, only the size is drawn."""


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark and method: normalised test accuracy in percent, storage in 1e9 bits."""
    table = results.with_tasks(results.each("table.csv").query("method in @NAMES"))
    return table[["benchmark", "method", "tasks", "normalized_accuracy", "formula_gbit"]]


def draw(data: pd.DataFrame) -> Figure:
    figure, panels = style.empty_panels(2, columns=2, height=2.3, width=style.SCREEN)
    unit, factor = byte_unit(data["formula_gbit"])
    data = data.assign(size=factor * data["formula_gbit"])
    titles = {"normalized_accuracy": "accuracy (% of fine-tuned)", "size": f"size ({unit})"}
    last = data[data["tasks"] == data["tasks"].max()].drop_duplicates("method")
    last = last.assign(name=last["method"].map(NAMES)).set_index("method")
    for panel, (column, title), low in zip(panels, titles.items(), (None, 0), strict=True):
        shown = data if column == "size" else data[data["method"] != "zeroshot"]
        for method, rows in style.groups(shown.sort_values("tasks", kind="stable"), "method"):
            look = style.look_of(method).line | {"color": style.KINDS[style.kind_of(method)].color}
            panel.plot(rows["tasks"], rows[column], linewidth=1.8, **look)
        panel.set_title(title, loc="left")
        panel.margins(y=0.12)
        panel.set(xlabel="number of tasks", xticks=sorted(data["tasks"].unique()), ylim=(low, None))
        panel.yaxis.set_major_formatter("{x:g}")
        style.label_points(panel, last[last.index.isin(shown["method"])], "tasks", column, "name")
    if {"fine_tuned", "tall_mask_ties"} <= {*last.index}:
        masks, models = last.loc["tall_mask_ties"], last.loc["fine_tuned"]
        saved, kept = models["size"] / masks["size"], masks["normalized_accuracy"]
        space = f"{saved:.1f} times less space" if saved >= 1.05 else "no less space"
        title = f"TALL-masks, {masks['tasks']} tasks: {space}, {kept:.1f} % of the accuracy"
        figure.suptitle(title, weight="bold", fontsize=9.5)
    accuracy = data.pivot(index=["tasks", "benchmark"], columns="method", values="normalized_accuracy")
    accuracy = accuracy.reindex(columns=list(NAMES))
    if (below := accuracy["consensus_task_arithmetic"] < accuracy["task_arithmetic"]).any():
        counts = ", ".join(map(str, accuracy[below].index.unique("tasks")))
        figure.set_figheight(figure.get_figheight() + 0.45)
        reason = "it drops every weight that fewer than two tasks need"
        figure.supxlabel(f"At {counts} tasks consensus is below task arithmetic:\n{reason}.", fontsize=8)
    style.legend_of_kinds(figure)
    return figure
