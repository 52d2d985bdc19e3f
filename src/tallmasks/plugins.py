"""Catalogues and model families, of the package and from outside: loading, and the digest of their code."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tallmasks.artifacts.fingerprints import fingerprint_of_module
from tallmasks.errors import TallmasksError, at_import, nearest, needed_for


def load_plugin(what: str, name: str, packages: Mapping[str, str], attribute: str) -> Any:
    """The object `attribute` of a module: one of the package's, by a short name, or any by its own name.

    Raises TallmasksError where there is no such module or object, or its import ends in an error.
    """
    module, problem = packages.get(name, name), ""
    try:
        if all(module.split(".")):  # importlib has errors of other kinds for "", ".x" and "x."
            with needed_for(f"{what} {name!r}"):
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
        f"no {what} {name!r}{problem}{nearest(name, packages)}; there are: {', '.join(packages)}, and every importable "
        f"module with an object {attribute}"
    )


def outside_code(name: str, packages: Mapping[str, str]) -> str | None:
    """The fingerprint of a module from outside, for recipes; None for the package's own, as stages have versions."""
    if packages.get(name, name).partition(".")[0] == __name__.partition(".")[0]:
        return None
    return fingerprint_of_module(name)
