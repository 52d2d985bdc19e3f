"""Figure 1, from real weights: four task vectors, their merge, their masks and the consensus."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm
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
NAMES = {
    "vector": ("task vectors τ", "merged vector"),
    "mask": ("masks m", "consensus mask"),
    "masked": ("masked vector", "consensus vector"),
}
"""Labels of each row: for the tasks' blocks, and for the merged one."""


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per block (``row`` of the figure and task, or "merged") and weight (``y``, ``x``): its value."""
    return results.each("illustration/weights.csv")


def draw(data: pd.DataFrame) -> Figure:
    blocks = list(dict.fromkeys(data["block"]))
    figure, panels = style.panels(data, ["row", "block"], columns=len(blocks), height=1.4)
    largest = float(data[data["row"] != "mask"]["value"].abs().max()) or 1.0
    scale = PowerNorm(0.5, 0, largest)  # the square root keeps small weights visible
    for panel, part in panels:
        row, block = part["row"].iloc[0], part["block"].iloc[0]
        values = part.pivot(index="y", columns="x", values="value").to_numpy()
        if row == "mask":
            panel.imshow(values, cmap="Greys", vmin=0, vmax=1.3, interpolation="nearest")
        else:
            image = panel.imshow(np.abs(values), cmap=style.INTENSITY, norm=scale, interpolation="nearest")
        panel.set(xticks=[], yticks=[])
        panel.grid(visible=False)
        panel.spines[:].set(visible=True, color=style.GREY)
        of_tasks, of_merged = NAMES[row]
        if block == MERGED:
            panel.set_title(of_merged, fontsize=9)
        elif row == "vector":
            panel.set_title(title(block), fontsize=9)
        if block == blocks[0]:
            panel.set_ylabel(of_tasks)
    figure.colorbar(image, ax=figure.axes, shrink=0.5, label="size of the weight's change")
    return figure
