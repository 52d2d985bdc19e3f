"""Figure 1, from real weights: the vectors of four tasks, what they merge to, their masks and the consensus."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, style
from tallmasks.tasks.titles import title

FIGURE = FigureSpec(
    title="Masks and consensus of one weight matrix",
    place=10,
    paper="Figure 1",
    views=("illustration",),
    scope="smallest",
)

MERGED = "merged"
ROWS = ("vector", "mask", "masked")


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per block (``row`` of the figure and task, or "merged") and weight (``y``, ``x``): its value."""
    return results.each("illustration/weights.csv")


def draw(data: pd.DataFrame) -> Figure:
    """Vectors, masks and masked merged vectors in rows; a column per task and, on the right, the merged model.

    As in the paper, colour is magnitude: the darker, the further from 0, which is white.
    """
    columns = list(dict.fromkeys(data["block"]))
    style.apply()
    figure, axes = style.panels(len(ROWS) * len(columns), columns=len(columns), height=1.5)
    largest = float(data[data["row"] != "mask"]["value"].abs().max())
    for index, panel in enumerate(axes):
        row, block = ROWS[index // len(columns)], columns[index % len(columns)]
        part = data[(data["row"] == row) & (data["block"] == block)]
        values = part.pivot(index="y", columns="x", values="value").to_numpy()
        if row == "mask":
            panel.imshow(values, cmap="Greys", vmin=0, vmax=1.3, interpolation="nearest")
        else:
            panel.imshow(_spread(values, largest), cmap=style.INTENSITY, vmin=0, vmax=1, interpolation="nearest")
        _label(panel, row, block, first=index % len(columns) == 0)
    return figure


def _spread(values: np.ndarray, largest: float) -> np.ndarray:
    """Square root of the share of the largest magnitude: small weights stay visible, and 0 stays white."""
    return np.sqrt(np.abs(values) / (largest or 1))


def _label(panel: Axes, row: str, block: str, first: bool) -> None:
    names = {
        "vector": ("task vectors τ", "merged vector"),
        "mask": ("masks m", "consensus mask"),
        "masked": ("masked merged vector", "consensus vector"),
    }
    of_tasks, of_merged = names[row]
    panel.set_xticks([])
    panel.set_yticks([])
    panel.grid(visible=False)
    for spine in panel.spines.values():
        spine.set(visible=True, color=style.GREY)
    if block == MERGED:
        panel.set_title(of_merged, fontsize=7.5)
    elif row == "vector":
        panel.set_title(title(block), fontsize=7.5)
    if first:
        panel.set_ylabel(of_tasks, fontsize=7.5)
