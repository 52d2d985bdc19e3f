"""Beyond the paper: accuracy against the bits of real files, bundles in every dtype of tau_MTL among them."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style

FIGURE = FigureSpec(
    title="Accuracy against the size of the files", place=120, views=("benchmark", "stored"), scope="largest"
)

DRAWN = {"int8": "int8", "bfloat16": "bf16", "float32": "32"}
"""The dtypes with a marker, and their names in the legend; float16 has the bits of bfloat16."""
WHOLE = "float32"
"""The dtype of every file but the bundles."""


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark, method and dtype: normalised test accuracy in percent, and 1e9 bits of files."""
    columns = ["benchmark", "method", "dtype", "normalized_accuracy", "stored_gb"]
    bundles = results.each("stored/stored.csv")[columns]
    others = results.each("table.csv").query("stored_gb.notna()").assign(dtype=WHOLE)[columns]
    table = pd.concat([bundles, others[~others["method"].isin(bundles["method"])]], ignore_index=True)
    return results.with_tasks(table)


def _labels(data: pd.DataFrame) -> pd.Series:
    """What the legend says of each row: its method, and the dtypes of a bundle in the order of their markers."""
    titles = data["method"].map(style.title_of)
    return titles.where(~_in_bundles(data), titles + f"\n({', '.join(DRAWN.values())})")


def _in_bundles(data: pd.DataFrame) -> pd.Series:
    """Of each row, whether its method has bundles in several dtypes."""
    return data.duplicated(["benchmark", "method"], keep=False)


def draw(data: pd.DataFrame) -> Figure:
    """A panel per benchmark: a marker per method and dtype; a line joins the dtypes of a bundle.

    Bundles stand at their bits, others side by side where their bits are about equal.
    """
    data = data[data["dtype"].isin(DRAWN)]
    labels = {"xlabel": f"bits of the files (Gb)\n{style.SIDE_BY_SIDE}", "ylabel": "normalised accuracy (%)"}
    figure, panels = style.panels(data.assign(label=_labels(data)), ["benchmark"], columns=1, height=4, **labels)
    for panel, part in panels:
        for method, rows in style.groups(part, "method"):
            rows = rows.sort_values("stored_gb")
            panel.plot(rows["stored_gb"], rows["normalized_accuracy"], color=style.look_of(method).color, zorder=1)
        style.points(panel, part, "stored_gb", at_place=_in_bundles(part))
    style.legend(figure)
    return figure
