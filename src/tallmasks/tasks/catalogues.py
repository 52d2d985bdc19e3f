"""The contract of a catalogue of tasks and their examples.

A catalogue is a module with an object `CATALOGUE`.  Those in `CATALOGUES` have short names; params.yaml names any other
by its module (`tasks: my_package.my_tasks`), which is in the project's folder or installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tallmasks.plugins import load_plugin
from tallmasks.tasks.task import Task

CATALOGUES = {
    "vision": "tallmasks.tasks.vision",
    "text": "tallmasks.tasks.text",
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

    The code of a catalogue from outside joins every recipe: its module and what that imports from beside it.  So any
    changed line remakes all examples.  A catalogue with ``numbered = True`` prevents that.  Its recipes then hold what
    decides the examples, such as a number that is raised whenever one recipe gives other examples.

    Attributes:
        versioned: Whether DVC keeps the examples, as nobody else can download them.
    """

    @property
    def versioned(self) -> bool: ...

    def tasks(self, params: Params) -> Mapping[str, Task]:
        """The tasks by name, with those that params.yaml describes."""

    def check(self, params: Params) -> None:
        """Refuse wrong values in params.yaml, also of its models' entries, with a TallmasksError of one line."""

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        """The recipe of one split of a task for a model, from its entry in params.yaml.

        Paths in params.yaml are relative to `root`.
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
