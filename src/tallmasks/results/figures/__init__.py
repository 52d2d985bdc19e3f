"""Figures: each module of this folder draws one, from result files alone.

A module has two functions.  ``data(results)`` collects what is drawn into one table, and that table is the CSV beside
the figure; ``draw(data)`` returns a matplotlib figure and takes nothing else, so that what is drawn is what the CSV
says.  ``FIGURES`` says which result files each one reads; a new figure is a module and a line there.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tallmasks.store.errors import TallmasksError, nearest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class FigureSpec:
    """What the workflow has to know of a figure before it draws it.

    Attributes:
        title: for people.
        paper: which figure of Wang et al. 2024 it corresponds to; empty if it goes beyond the paper.
        views: the results folders of a benchmark that it reads.
        scope: the benchmarks that it shows: "every" declared one, the "smallest" or the "largest".
    """

    title: str
    paper: str
    views: tuple[str, ...]
    scope: str = "every"


FIGURES: dict[str, FigureSpec] = {
    "illustration": FigureSpec(
        "Masks and consensus of one weight matrix", "Figure 1", ("illustration",), scope="smallest"
    ),
    "mask_percentage": FigureSpec("Selected weights and masked accuracy per task", "Figure 2", ("benchmark", "masks")),
    "mask_agreement": FigureSpec("Mask agreement profiles", "Figures 3 and 8", ("benchmark",)),
    "radar": FigureSpec("Accuracy per task", "Figures 4 and 9 to 11", ("benchmark",)),
    "task_count": FigureSpec(
        "Accuracy and storage against the number of tasks", "Figure 5", ("benchmark", "subsets"), scope="largest"
    ),
    "threshold": FigureSpec("Accuracy against the consensus threshold", "Figures 6 and 7", ("thresholds",)),
    "validation_alpha": FigureSpec("Choosing the scaling coefficient", "", ("benchmark",)),
    "validation_lambda": FigureSpec("Choosing the mask lambdas", "", ("benchmark",)),
    "mask_density": FigureSpec("Mask density per layer and kind of tensor", "", ("masks",)),
    "mask_overlap": FigureSpec("Overlap of the masks, task by task", "", ("masks",)),
    "pareto": FigureSpec("Accuracy against stored bits", "", ("benchmark",)),
    "stored": FigureSpec("Accuracy against the size of the files", "", ("benchmark", "stored"), scope="largest"),
    "field_pareto": FigureSpec("Accuracy against stored bits, every method", "", ("field",)),
    "field_task_count": FigureSpec("Accuracy against the number of tasks, the best of all methods", "", ("field",)),
}
"""Every figure by the name of its module, in the order of the paper and then beyond it."""

FORMATS = ("pdf", "svg", "png")


@dataclass(frozen=True)
class ResultFiles:
    """The result files of one model.

    Attributes:
        folder: results/<model>.
        benchmarks: tasks by benchmark, in the order in which people read them.
    """

    folder: Path
    benchmarks: Mapping[str, tuple[str, ...]]

    def path(self, benchmark: str, file: str) -> Path:
        return self.folder / benchmark / file

    def selections(self) -> dict[str, Any]:
        """selection.json of every benchmark, by name."""
        return {name: json.loads(self.path(name, "selection.json").read_text()) for name in self.benchmarks}

    def each(self, file: str) -> pd.DataFrame:
        """One CSV of every benchmark, with the benchmark's name in the first column."""
        import pandas as pd  # the plan needs FIGURES, and no table

        parts = [pd.read_csv(self.path(name, file)) for name in self.benchmarks]
        return pd.concat(
            [part.assign(benchmark=name) for name, part in zip(self.benchmarks, parts, strict=True)],
            ignore_index=True,
        ).pipe(lambda table: table[["benchmark", *table.columns.drop("benchmark")]])


def in_scope(scope: str, benchmarks: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Those of the benchmarks (tasks by name) that something of this scope shows, the smallest first."""
    ordered = sorted(benchmarks.items(), key=lambda item: len(item[1]))
    return dict({"every": ordered, "smallest": ordered[:1], "largest": ordered[-1:]}[scope])


def load(name: str) -> ModuleType:
    """The module of a figure.  Raises TallmasksError with the nearest valid name."""
    if name not in FIGURES:
        raise TallmasksError(f"no figure {name!r}{nearest(name, FIGURES)}; figures: {', '.join(FIGURES)}")
    return importlib.import_module(f"tallmasks.results.figures.{name}")
