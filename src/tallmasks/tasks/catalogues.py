"""The contract of a catalogue of tasks and their examples.

A catalogue is a package with an object `CATALOGUE`.  A new one is a folder and a line in `CATALOGUES`; params.yaml
names one from outside by its module (`tasks: my_package.my_tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tallmasks.plugins import load_plugin
from tallmasks.tasks.task import Task

CATALOGUES = {
    "drawn": "tallmasks.tasks.drawn",
    "vision": "tallmasks.tasks.vision",
    "text": "tallmasks.tasks.text",
    "written": "tallmasks.tasks.written",
}
Params = Mapping[str, Any]


@dataclass(frozen=True)
class ExamplesRecipe:
    """What decides one split of one task: plain JSON values, and the user's files and folders by role."""

    params: Params
    sources: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class ExamplesFile:
    """A file of examples to be written: its path and metadata, the threads to use, and `say` for progress lines."""

    path: Path
    metadata: Mapping[str, str]
    threads: int = 1
    say: Callable[[str], None] = print


class Catalogue(Protocol):
    """Where a model's tasks come from.

    It may have two further methods.  ``count(recipe)``: how many examples a recipe gives, as published.
    ``example_bytes(recipe)``: about how many bytes they take.

    Attributes:
        versioned: Whether DVC keeps the examples, as nobody else can download them.
    """

    @property
    def versioned(self) -> bool: ...

    def tasks(self, params: Params) -> Mapping[str, Task]:
        """The tasks by name, with those that params.yaml describes."""

    def check(self, params: Params) -> None:
        """Refuse wrong values in params.yaml with a TallmasksError of one line."""

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        """The recipe of one split of a task for a model, from its entry in params.yaml.

        Paths in params.yaml are relative to `root`.  The code of a catalogue from outside joins the recipe later.
        """

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        """Make the examples of a recipe.

        Raises TallmasksError where they cannot be had; the message says what to do.
        """

    def missing(self, recipe: Params) -> str | None:
        """The message if examples without sources cannot be made on this machine now; None if all is well."""


def catalogue(name: str) -> Catalogue:
    """The catalogue that a model's ``tasks`` key in params.yaml names.

    Raises TallmasksError where there is none of that name, or the module that it names has none.
    """
    return load_plugin("task catalogue", name, CATALOGUES, "CATALOGUE")
