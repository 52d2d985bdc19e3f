"""The contract of a catalogue: what the workflow asks about its tasks and their examples, and who answers.

A catalogue is a package with an object `CATALOGUE`.  One that is added is a folder and a line in `CATALOGUES`; one that
lies elsewhere is named in params.yaml by its module (`tasks: my_package.my_tasks`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tallmasks.store.errors import TallmasksError, at_import, nearest, needed_for
from tallmasks.store.fingerprints import fingerprint_of_module
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
    """What decides one split of one task.

    Attributes:
        params: plain JSON values.
        sources: files and folders of the user's, by role; their sha256 enters the recipe.
    """

    params: Params
    sources: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class ExamplesFile:
    """A file of examples that is to be written: where, what it says of its making, and with how many threads.

    `say` is called with lines for people.
    """

    path: Path
    metadata: Mapping[str, str]
    threads: int = 1
    say: Callable[[str], None] = print


class Catalogue(Protocol):
    """Where a model's tasks come from.

    Attributes:
        versioned: Whether DVC keeps the examples: not what everybody can download.
    """

    @property
    def versioned(self) -> bool: ...

    def tasks(self, params: Params) -> Mapping[str, Task]:
        """The tasks by name, those among them that params.yaml describes."""

    def check(self, params: Params) -> None:
        """Refuse what params.yaml says of this catalogue and cannot be meant, with a TallmasksError of one line."""

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        """What decides the examples of one split of a task for a model, from its entry in params.yaml.

        Paths in params.yaml are relative to `root`.  The recipe of a catalogue from outside has its code beside these
        params, as ``catalogue_code``.
        """

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        """Make the examples that a recipe's params and sources decide.

        Raises:
            TallmasksError: They cannot be had; the message says what to do.
        """

    def missing(self, recipe: Params) -> str | None:
        """What to say if examples without sources cannot be made on this machine now; None if all is well."""


def catalogue(name: str) -> Catalogue:
    """A catalogue by what a model's ``tasks`` key in params.yaml says.

    Raises:
        TallmasksError: There is none of that name, or the module that it names has none.
    """
    return registered("task catalogue", name, CATALOGUES, "CATALOGUE")


def registered(what: str, name: str, known: Mapping[str, str], attribute: str) -> Any:
    """An object of a package that is known by a name of its own, or named as a module.

    Raises:
        TallmasksError: There is no such package, it has no object of that name, or its import ends in an error.
    """
    module, problem = known.get(name, name), ""
    try:
        if all(module.split(".")):  # importlib has errors of other kinds for "", ".x" and "x."
            with needed_for(f"{what} {name!r}"):
                found = importlib.import_module(module)
            if hasattr(found, attribute):
                return getattr(found, attribute)
            problem = f": {getattr(found, '__file__', None) or found} has no object {attribute}"
    except TallmasksError:
        raise
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")):
            raise TallmasksError(f"{what} {name!r}: {at_import(error)}") from error
    raise TallmasksError(
        f"no {what} {name!r}{problem}{nearest(name, known)}; there are: {', '.join(known)}, and every importable "
        f"module with an object {attribute}"
    )


def outside_code(name: str, known: Mapping[str, str]) -> str | None:
    """What stands in recipes for the code of a module from outside; None of the package's own, for which the numbers of
    the stages stand."""
    if known.get(name, name).partition(".")[0] == __name__.partition(".")[0]:
        return None
    return fingerprint_of_module(name)
