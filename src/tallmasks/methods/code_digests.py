"""Digests of the code of merges and methods, used in recipes. They ignore docstrings and comments.

The digest of a function in ``rows/`` covers its file and the files of ``rows/`` that it imports, except registrations:
``@merge(...)``, ``@method(...)`` and expression statements. Functions from elsewhere count by name only, because stage
versions cover their code.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError
from tallmasks.io.fingerprints import LENGTH, fingerprint, imported_by, is_own_import
from tallmasks.methods import rows


def code_digest(*values: Any) -> str:
    """The digest of functions, protocols, names and numbers."""
    return hashlib.sha256(json.dumps([_plain(value) for value in values]).encode()).hexdigest()[:LENGTH]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [type(value).__qualname__, _plain(fields)]
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if callable(value):
        if value.__module__.startswith(f"{rows.__name__}.") and value.__name__ == "<lambda>":
            raise TallmasksError(
                f"{value.__module__}: found a lambda in a method or merge; expected a function with a name, because "
                "recipes contain a digest of its code: use def"
            )
        if not value.__module__.startswith(f"{rows.__name__}."):
            return value.__qualname__
        return [value.__qualname__, digest_of_module(value.__module__)]
    return repr(value)


@functools.cache
def digest_of_module(name: str) -> str:
    """The digest of the definitions in a module of ``rows`` and in the modules of ``rows`` that it imports."""
    digests: dict[str, str] = {}
    waiting = {name}
    while waiting:
        module = waiting.pop()
        path = Path(rows.__path__[0], *module.removeprefix(f"{rows.__name__}.").split("."))
        there = next(filter(Path.is_file, (path / "__init__.py", path.with_suffix(".py"))), None)
        if there is not None and module not in digests:
            digests[module] = fingerprint(_defining(there))
            package = module if there.name == "__init__.py" else module.rpartition(".")[0]
            waiting |= {other for other in imported_by(there, package) if other.startswith(f"{rows.__name__}.")}
    own = digests.pop(name)
    return hashlib.sha256(json.dumps([own, sorted(digests.items())]).encode()).hexdigest()[:LENGTH]


def _defining(path: Path) -> list[ast.stmt]:
    """The statements of a file, without registrations and imports from the package."""
    kept = []
    for statement in ast.parse(path.read_bytes()).body:
        if isinstance(statement, ast.FunctionDef):
            statement.decorator_list = [each for each in statement.decorator_list if not _registers(each)]
        if not (is_own_import(statement) or isinstance(statement, ast.Expr)):
            kept.append(statement)
    return kept


def _registers(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in ("merge", "method")
