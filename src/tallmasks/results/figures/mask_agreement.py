"""Figure 3 and its appendix: how many tasks' masks agree on a weight, for task arithmetic and for TIES."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(title="Mask agreement profiles", place=30, paper="Figures 3 and 8", views=("benchmark",))

MERGED_ZERO = "merged_zero"
KINDS = {
    "catastrophic": (style.GREY, "////"),
    "selfish": (style.ORANGE, "xxxx"),
    "general": (style.SKY, ""),
    "universal": (style.BLUE, "...."),
    MERGED_ZERO: ("#ffffff", "----"),
}
LABELS = {
    "catastrophic": "catastrophic (n = 0)",
    "selfish": "selfish (n = 1)",
    "general": "general",
    "universal": "universal (n = all)",
    MERGED_ZERO: "merged value is 0,\nwhich no mask changes",
}


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and n, with the kind of those weights and their share in percent."""
    table = results.with_tasks(results.each("agreement.csv").astype({"n": str}))
    kinds = [_kind(n, tasks) for n, tasks in zip(table["n"], table["tasks"], strict=True)]
    table = table.assign(kind=kinds, percentage=(100 * table["fraction"]).round(4))
    return table[["benchmark", "method", "n", "kind", "percentage", "tasks"]]


def _kind(n: str, tasks: int) -> str:
    if n == MERGED_ZERO:
        return n
    return {0: "catastrophic", tasks: "universal", 1: "selfish"}.get(int(n), "general")


def draw(data: pd.DataFrame) -> Figure:
    """A row per benchmark, a column per merge; weights whose merged value is 0 stand apart, on the right."""
    columns = data["method"].nunique()
    labels = {"xlabel": "number of tasks n\nwhose mask holds it", "ylabel": "weights (%)"}
    figure, panels = style.panels(
        data, ["benchmark", "method"], columns, height=1.55, width=style.COLUMN, sharey="row", **labels
    )
    for panel, part in panels:
        tasks = int(part["tasks"].iloc[0])
        apart = 2 + tasks // 10
        for kind, rows in style.groups(part, "kind"):
            places = [tasks + apart if n == MERGED_ZERO else int(n) for n in rows["n"].astype(str)]
            color, hatch = KINDS[kind]
            panel.bar(
                places, rows["percentage"], 0.8, color=color, hatch=hatch, edgecolor="#404040", label=LABELS[kind]
            )
        ticks = range(0, tasks + 1, max(1, tasks // 5))
        panel.set_xticks([*ticks, tasks + apart], [*map(str, ticks), "zero"])
        panel.grid(axis="x", visible=False)
    style.legend(figure)
    return figure
