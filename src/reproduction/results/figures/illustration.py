"""Figure 1 from real weights: four task vectors, their sum, their masks and the consensus."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from reproduction.results.figures import FigureSpec, ResultFiles, style
from reproduction.tasks.titles import title

FIGURE = FigureSpec(
    title="Task vectors, masks and consensus of one weight matrix",
    place=10,
    paper="Figure 1",
    views=("illustration",),
    scope="smallest",
)

MERGED = "merged"
NAMES = {
    "vector": ("task vectors τ", "merged vector"),
    "mask": ("masks m\n(dark: selected)", "consensus mask"),
    "masked": ("masked vector\n(white: 0)", "consensus vector"),
}
"""By row: its label, and the title of its last block."""


def data(results: ResultFiles) -> pd.DataFrame:
    """The columns of `illustrated_block`, after the benchmark."""
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
        row_label, merged_title = NAMES[row]
        if block == MERGED:
            panel.set_title(merged_title, fontsize=9)
        elif row == "vector":
            panel.set_title(title(block), fontsize=9)
        if block == blocks[0]:
            panel.set_ylabel(row_label)
    figure.colorbar(image, ax=figure.axes, shrink=0.5, label="absolute change of the weight")
    return figure
