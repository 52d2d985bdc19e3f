"""Beyond the paper: accuracy against size for all methods, including later ones."""

from __future__ import annotations

import pandas as pd

from reproduction.results.figures import FigureSpec, ResultFiles, pareto

FIGURE = FigureSpec(title="Accuracy against size, all methods", place=130, views=("field",))

draw = pareto.draw


def data(results: ResultFiles) -> pd.DataFrame:
    return pareto.fronts(results, "field.csv")
