"""Figures: each module of this folder draws one, from result files alone.

A module has two functions.  ``data(results)`` collects what is drawn into one table, and that table is the CSV beside
the figure; ``draw(data)`` returns a matplotlib figure and takes nothing else, so that what is drawn is what the CSV
says.  ``FIGURE`` says which result files it reads.
"""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class FigureSpec:
    """What the workflow has to know of a figure before it draws it.

    Attributes:
        title: for people.
        place: figures are sorted by it: in the order of the paper, and then beyond it.
        paper: which figure of Wang et al. 2024 it corresponds to; empty if it goes beyond the paper.
        views: the results folders of a benchmark that it reads.
        scope: the benchmarks that it shows: "every" declared one, the "smallest" or the "largest".
    """

    title: str
    place: int
    views: tuple[str, ...]
    paper: str = ""
    scope: str = "every"


def _declared() -> dict[str, FigureSpec]:
    """The `FIGURE` of every module here, by the module's name.

    It is read and not imported, since the plan needs it and none of what the modules draw with: so all its values are
    written out.
    """
    declared = {}
    for path in Path(__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FIGURE":
                assert isinstance(node.value, ast.Call)
                values = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.value.keywords}
                declared[path.stem] = FigureSpec(**values)
    return dict(sorted(declared.items(), key=lambda item: item[1].place))


FIGURES: dict[str, FigureSpec] = _declared()
"""Every figure by the name of its module."""

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

    def with_tasks(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table with the number of tasks of each row's benchmark as the last column."""
        return table.assign(tasks=table["benchmark"].map({name: len(tasks) for name, tasks in self.benchmarks.items()}))

    def each(self, file: str) -> pd.DataFrame:
        """One CSV of every benchmark, with the benchmark's name in the first column."""
        import pandas as pd  # the plan needs FIGURES, and no table

        parts = {name: pd.read_csv(self.path(name, file)) for name in self.benchmarks}
        return pd.concat(parts, names=["benchmark"]).reset_index("benchmark").reset_index(drop=True)


def in_scope(scope: str, benchmarks: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Those of the benchmarks (tasks by name) that something of this scope shows, the smallest first."""
    ordered = sorted(benchmarks.items(), key=lambda item: len(item[1]))
    return dict({"every": ordered, "smallest": ordered[:1], "largest": ordered[-1:]}[scope])


def figure_module(name: str) -> ModuleType:
    return importlib.import_module(f"tallmasks.results.figures.{name}")
