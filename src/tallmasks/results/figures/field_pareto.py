"""Beyond the paper: accuracy against stored bits of every method there is, the later ones too."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from tallmasks.results.figures import FigureSpec, ResultFiles, pareto

FIGURE = FigureSpec(title="Accuracy against stored bits, every method", place=130, views=("field",))


def data(results: ResultFiles) -> pd.DataFrame:
    """One row per benchmark and method; see `pareto.fronts`."""
    return pareto.fronts(results, "field.csv")


def draw(data: pd.DataFrame) -> Figure:
    """As the figure of the paper's methods, with room for a longer legend of two columns."""
    return pareto.draw(data, height=max(4.2, 0.1 * data["method"].nunique()))
