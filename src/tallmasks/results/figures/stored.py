"""Beyond the paper: accuracy against the bits of real files, bundles in every dtype of tau_MTL among them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import benchmark_title

FIGURE = FigureSpec(
    title="Accuracy against the size of the files",
    place=120,
    views=("benchmark", "stored"),
    scope="largest",
)

SHORT = {"float32": "32", "bfloat16": "bf16", "float16": "16", "int8": "int8"}
WHOLE = "float32"
"""The dtype of every file but the bundles."""


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and dtype: normalised test accuracy in percent, and 1e9 bits of files."""
    columns = ["benchmark", "method", "dtype", "normalized_accuracy", "stored_gb"]
    bundles = results.each("stored/stored.csv")[columns]
    others = results.each("table.csv").query("stored_gb.notna()").assign(dtype=WHOLE)[columns]
    table = pd.concat([bundles, others[~others["method"].isin(bundles["method"])]], ignore_index=True)
    return table.assign(tasks=table["benchmark"].map({name: len(tasks) for name, tasks in results.benchmarks.items()}))


def draw(data: pd.DataFrame) -> Figure:
    """A panel per benchmark: a marker per method; a bundle's dtypes are joined by a line, the smallest at the left."""
    parts = list(style.groups(data, "benchmark"))
    figure, axes = style.panels(len(parts), columns=1, height=3.2)
    for panel, (benchmark, part) in zip(axes, parts, strict=True):
        for method, rows in style.groups(part, "method"):
            rows = rows.sort_values("stored_gb", kind="stable")
            label = style.title_of(method)
            if len(rows) > 1:
                label += f" ({', '.join(SHORT.get(dtype, dtype) for dtype in rows['dtype'])})"
            panel.plot(
                rows["stored_gb"], rows["normalized_accuracy"], label=label, fillstyle="none", **style.look(method).line
            )
        panel.set(title=benchmark_title(benchmark, int(part["tasks"].iloc[0])), xscale="log")
        panel.set(xlabel="bits of the files (Gb)", ylabel="normalised accuracy (%)")
        ticks = {f"{tick:.2g}": tick for tick in sorted(set(part["stored_gb"]))}
        panel.set_xticks(list(ticks.values()), list(ticks))
        panel.minorticks_off()
        panel.margins(0.06)
    style.legend(figure, axes, columns=2)
    return figure
