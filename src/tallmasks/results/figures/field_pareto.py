"""Beyond the paper: accuracy against stored bits of every method, including later ones."""

from __future__ import annotations

import pandas as pd

from tallmasks.results.figures import FigureSpec, ResultFiles, pareto

FIGURE = FigureSpec(title="Accuracy against stored bits, every method", place=130, views=("field",))

draw = pareto.draw


def data(results: ResultFiles) -> pd.DataFrame:
    return pareto.fronts(results, "field.csv")
