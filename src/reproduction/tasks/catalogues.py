"""The interface of a task catalogue: a module with an object `CATALOGUE`.

params.yaml names a catalogue by its short name in `CATALOGUES`, or by its module (`tasks: my_package.my_tasks`), which
is in the project's folder or installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from reproduction.plugins import load_plugin
from reproduction.tasks.task import Task

CATALOGUES = {
    "vision": "reproduction.tasks.vision",
    "text": "reproduction.tasks.text",
}
Params = Mapping[str, Any]


@dataclass(frozen=True)
class ExamplesRecipe:
    """Everything that determines the examples of one split: plain JSON values, and the user's files by role."""

    params: Params
    sources: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class ExamplesFile:
    """The examples file to write; `say` prints progress."""

    path: Path
    metadata: Mapping[str, str]
    threads: int = 1
    say: Callable[[str], None] = print


class Catalogue(Protocol):
    """A set of tasks and the code that writes their examples.

    The recipes of a user's own catalogue contain the digest of its file and of what that imports from its folder.

    Attributes:
        versioned: True if DVC stores the examples because they cannot be downloaded.
    """

    @property
    def versioned(self) -> bool: ...

    def tasks(self, params: Params) -> Mapping[str, Task]:
        """Tasks by name, including those declared in params.yaml."""

    def check(self, params: Params) -> None:
        """Raise TallmasksError with a one-line message for a wrong value in params.yaml, including model entries."""

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        """The recipe of one split of a task; `model` is an entry of params.yaml, whose paths start at `root`."""

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        """Write the examples.  Raises TallmasksError if the data are unavailable; the message says what to do."""

    def missing(self, recipe: Params) -> str | None:
        """An error message if the examples of a recipe without sources cannot be written now, else None."""


def catalogue(name: str) -> Catalogue:
    """The catalogue named by ``tasks`` in a model's entry.  Raises TallmasksError if there is none."""
    return load_plugin("task catalogue", name, CATALOGUES, "CATALOGUE")
