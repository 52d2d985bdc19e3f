"""Figure 3 and its appendix: how many tasks' masks agree on a weight, for task arithmetic and for TIES."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import benchmark_title

FIGURE = FigureSpec(
    title="Mask agreement profiles",
    place=30,
    paper="Figures 3 and 8",
    views=("benchmark",),
)

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
    MERGED_ZERO: "merged value is 0, which no mask changes",
}


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and n, with the kind of those weights and their share in percent."""
    table = results.each("agreement.csv").astype({"n": str})
    tasks = table["benchmark"].map({name: len(tasks) for name, tasks in results.benchmarks.items()})
    kinds = [_kind(n, count) for n, count in zip(table["n"], tasks, strict=True)]
    percent = (100 * table["fraction"]).round(4)
    return table.drop(columns="fraction").assign(kind=kinds, percentage=percent, tasks=tasks)


def _kind(n: str, tasks: int) -> str:
    if n == MERGED_ZERO:
        return n
    return {0: "catastrophic", tasks: "universal", 1: "selfish"}.get(int(n), "general")


def draw(data: pd.DataFrame) -> Figure:
    """A row per benchmark, a column per merge; weights whose merged value is 0 stand apart, on the right."""
    columns = data["method"].nunique()
    parts = list(data.groupby(["benchmark", "method"], sort=False))
    figure, axes = style.panels(len(parts), columns=columns, height=1.75, sharey="row")
    for index, (panel, ((benchmark, method), part)) in enumerate(zip(axes, parts, strict=True)):
        tasks = int(part["tasks"].iloc[0])
        for kind, rows in style.groups(part, "kind"):
            places = [tasks + 2 if n == MERGED_ZERO else int(n) for n in rows["n"].astype(str)]
            color, hatch = KINDS[kind]
            panel.bar(
                places, rows["percentage"], 0.8, color=color, hatch=hatch, edgecolor="#404040", label=LABELS[kind]
            )
        panel.set_title(f"{style.title_of(str(method))}, {benchmark_title(str(benchmark), tasks)}")
        ticks = range(0, tasks + 1, 1 if tasks <= 10 else 2)
        panel.set_xticks([*ticks, tasks + 2], [*map(str, ticks), "zero"])
        panel.set_xlabel("number of tasks n whose mask holds the weight")
        panel.grid(axis="x", visible=False)
        if index % columns == 0:
            panel.set_ylabel("weights (%)")
    style.legend(figure, axes, columns=3)
    return figure
