"""Figures, and the paper's tables: what is drawn from views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallmasks.results import figures, paper


@dataclass(frozen=True)
class Drawing:
    """Figures, or the paper's tables: files in a folder of results/<model>/ that are drawn from views.

    Attributes:
        name: of its script in workflow/scripts/; in recipes.
        version: raised when a change of code changes what is drawn.
        folder: below results/<model>/.
        known: each figure or table, by name.
    """

    name: str
    version: int
    folder: str
    known: Mapping[str, Any]


FIGURE = Drawing("figure", 10, "figures", figures.FIGURES)
PAPER_TABLE = Drawing("paper_table", 5, "tables", paper.TABLES)
DRAWINGS = {drawing.name: drawing for drawing in (FIGURE, PAPER_TABLE)}
