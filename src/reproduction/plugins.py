"""Load catalogues and model families, built in or from the user's modules, with digests of their code."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, nearest
from tallmasks.io.fingerprints import digest_of_code

SHIPPED = ("reproduction", "tiny_worlds", "real_texts", "real_images")
"""Packages whose code is in no digest: the versions of stages cover it."""


def load_plugin(what: str, name: str, packages: Mapping[str, str], attribute: str) -> Any:
    """The object `attribute` of a module: a built-in one by its short name, or any importable one by its full name.
    Raises TallmasksError if there is no such module or object."""
    module, problem = packages.get(name, name), ""
    if name not in packages:
        _look_in_project()
    try:
        if all(module.split(".")):  # importlib raises other errors for "", ".x" and "x."
            imported = importlib.import_module(module)
            if hasattr(imported, attribute):
                return getattr(imported, attribute)
            problem = f": {getattr(imported, '__file__', None) or imported} has no object {attribute}"
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
    raise TallmasksError(
        f"no {what} {name!r}{problem}{nearest(name, packages)}; expected one of {', '.join(packages)}, or an "
        f"importable module with an object {attribute}"
    )


def outside_code(name: str, packages: Mapping[str, str]) -> str | None:
    """The digest of a user's module, for recipes. None for modules of this project."""
    if packages.get(name, name).partition(".")[0] in SHIPPED:
        return None
    _look_in_project()
    spec = importlib.util.find_spec(name)
    return digest_of_code(Path(str(spec and spec.origin)))


def _look_in_project() -> None:
    """Make modules in the project folder importable; params.yaml is always read from there."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
