"""Beyond the paper: the validation curves from which each scaling coefficient is chosen."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style
from tallmasks import methods

FIGURE = FigureSpec(title="Choice of the scaling coefficient", place=70, views=("tables",))


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and alpha, without methods that tune another value, such as LiNeS."""
    return pd.DataFrame(
        {
            "benchmark": benchmark,
            "tasks": len(results.benchmarks[benchmark]),
            "method": method,
            "scaling_coefficient": point["scaling_coefficient"],
            "normalized_accuracy": point["normalized_accuracy"],
            "chosen": point["scaling_coefficient"] == record["scaling_coefficient"],
        }
        for benchmark, selection in results.selections().items()
        for method, record in selection.items()
        if "scaling_coefficient" in record and methods.get(method).tuned is None
        for point in record["validation"]
    )


def draw(data: pd.DataFrame) -> Figure:
    data = data.assign(end=data.groupby("method")["scaling_coefficient"].transform("max"))
    data = data.sort_values(["tasks", "benchmark", "end"], kind="stable")
    columns = data["end"].nunique()
    labels = {"xlabel": "scaling coefficient α", "ylabel": "normalised\nvalidation accuracy (%)"}
    figure, panels = style.panels(data, ["benchmark", "end"], columns, height=2.0, sharey="row", **labels)
    for panel, part in panels:
        style.line_per_method(panel, part, "scaling_coefficient", "normalized_accuracy")
        panel.set_title(f"{panel.get_title()}, α up to {part['end'].iloc[0]:g}")
        for row in part[part["chosen"]].to_dict("records"):
            color = style.look_of(row["method"]).color
            chosen = [row["scaling_coefficient"]], [row["normalized_accuracy"]]
            panel.plot(*chosen, "o", markersize=9, markerfacecolor="none", markeredgecolor=color)
    style.legend(figure)
    return figure
