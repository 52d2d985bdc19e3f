"""Figures: each module in this folder draws one figure from result files.

``FIGURE`` declares it.  ``data(results)`` returns the table that becomes the CSV next to the figure, and ``draw(data)``
draws a matplotlib figure from that table alone.
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
    """The declaration of a figure.

    Attributes:
        place: sort key; the paper's figures come first, in the paper's order.
        views: the results folders of a benchmark that it reads.
        paper: the corresponding figure of Wang et al. 2024; empty if there is none.
        scope: the benchmarks shown: "every", the "smallest" or the "largest".
    """

    title: str
    place: int
    views: tuple[str, ...]
    paper: str = ""
    scope: str = "every"


def _declared() -> dict[str, FigureSpec]:
    # parsed, not imported, so that the plan does not load matplotlib; so the values of FIGURE must be literals
    declared = {}
    for path in Path(__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FIGURE":
                assert isinstance(node.value, ast.Call)
                values = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.value.keywords}
                declared[path.stem] = FigureSpec(**values)
    return dict(sorted(declared.items(), key=lambda item: item[1].place))


FIGURES: dict[str, FigureSpec] = _declared()
"""By module name."""

FORMATS = ("pdf", "svg", "png")


@dataclass(frozen=True)
class ResultFiles:
    """The result files of one model: its folder results/<model>, and the tasks of each benchmark in display order."""

    folder: Path
    benchmarks: Mapping[str, tuple[str, ...]]

    def path(self, benchmark: str, file: str) -> Path:
        return self.folder / benchmark / file

    def selections(self) -> dict[str, Any]:
        """The content of selection.json by benchmark."""
        return {name: json.loads(self.path(name, "selection.json").read_text()) for name in self.benchmarks}

    def with_tasks(self, table: pd.DataFrame) -> pd.DataFrame:
        """Add the last column `tasks`, the number of tasks of the benchmark."""
        return table.assign(tasks=table["benchmark"].map({name: len(tasks) for name, tasks in self.benchmarks.items()}))

    def each(self, file: str) -> pd.DataFrame:
        """The same CSV of all benchmarks in one table, with the benchmark's name in the first column."""
        import pandas as pd  # not needed by the plan, which imports this module

        parts = {name: pd.read_csv(self.path(name, file)) for name in self.benchmarks}
        return pd.concat(parts, names=["benchmark"]).reset_index("benchmark").reset_index(drop=True)


def in_scope(scope: str, benchmarks: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The benchmarks (tasks by name) in a `FigureSpec.scope`, the smallest first."""
    ordered = sorted(benchmarks.items(), key=lambda item: len(item[1]))
    return dict({"every": ordered, "smallest": ordered[:1], "largest": ordered[-1:]}[scope])


def figure_module(name: str) -> ModuleType:
    return importlib.import_module(f"reproduction.results.figures.{name}")
