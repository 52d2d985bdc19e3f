"""Load catalogues and model families, built in or from the user's modules, and fingerprint their code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, at_import, nearest
from tallmasks.io.fingerprints import fingerprint_of_module


def load_plugin(what: str, name: str, packages: Mapping[str, str], attribute: str) -> Any:
    """The object `attribute` of a module: a built-in one by its short name, or any importable one by its full name.
    Raises TallmasksError if there is no such module or object, or if importing it fails."""
    module, problem = packages.get(name, name), ""
    if name not in packages:
        _look_in_project()
    try:
        if all(module.split(".")):  # importlib raises other errors for "", ".x" and "x."
            imported = importlib.import_module(module)
            if hasattr(imported, attribute):
                return getattr(imported, attribute)
            problem = f": {getattr(imported, '__file__', None) or imported} has no object {attribute}"
    except TallmasksError:
        raise
    except Exception as error:
        if not (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")):
            raise TallmasksError(f"{what} {name!r}: {at_import(error)}") from error
    raise TallmasksError(
        f"no {what} {name!r}{problem}{nearest(name, packages)}; expected one of {', '.join(packages)}, or an "
        f"importable module with an object {attribute}"
    )


def outside_code(name: str, packages: Mapping[str, str]) -> str | None:
    """The fingerprint of a user's module, for recipes. None for built-in modules, which stage versions cover."""
    if packages.get(name, name).partition(".")[0] == __name__.partition(".")[0]:
        return None
    _look_in_project()
    return fingerprint_of_module(name)


def _look_in_project() -> None:
    """Make modules in the project folder importable; params.yaml is always read from there."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
