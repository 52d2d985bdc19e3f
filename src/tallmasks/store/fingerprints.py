"""Digests of Python code, which comments, docstrings and layout do not change, nor the version of Python."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import json
from collections.abc import Iterable
from pathlib import Path

LENGTH = 12


def fingerprint(statements: Iterable[ast.stmt]) -> str:
    """The digest of some statements."""
    code = [_plain(statement) for statement in statements if not _is_text(statement)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:LENGTH]


@functools.cache
def fingerprint_of_file(path: Path) -> str:
    """The digest of a source file, as it was when this process first asked.

    Where it imports this package from does not count: what it imports is held to the numbers of the stages.
    """
    statements = ast.parse(path.read_bytes()).body
    return fingerprint(statement for statement in statements if not _is_own_import(statement))


@functools.cache
def fingerprint_with_parts(path: Path, package: str) -> str:
    """The digest of a source file and of the modules of a package that it imports, these with those that they import in
    their turn; `fingerprint_of_file` where it imports none.

    Args:
        path: the file.
        package: its dotted name; its modules lie in one folder.
    """
    folder = Path(importlib.import_module(package).__path__[0])
    parts: dict[str, str] = {}
    waiting = _imported_of(path, package)
    while waiting:
        name = waiting.pop()
        if name not in parts:
            parts[name] = fingerprint_of_file(folder / f"{name}.py")
            waiting |= _imported_of(folder / f"{name}.py", package)
    own = fingerprint_of_file(path)
    if not parts:
        return own
    return hashlib.sha256(json.dumps([own, sorted(parts.items())]).encode()).hexdigest()[:LENGTH]


def _imported_of(path: Path, package: str) -> set[str]:
    """The modules of a package that a file imports, by their last name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            found.add(str(node.module).removeprefix(f"{package}."))
    return found


def _plain(value: object) -> object:
    if isinstance(value, ast.AST):
        fields = ((name, inner) for name, inner in ast.iter_fields(value) if inner not in (None, []) and name != "kind")
        return [type(value).__name__, *([name, _plain(inner)] for name, inner in fields)]
    if isinstance(value, list):
        return [_plain(inner) for inner in value if not _is_text(inner)]
    return repr(value)


def _is_own_import(statement: ast.stmt) -> bool:
    package = __name__.partition(".")[0]
    return isinstance(statement, ast.ImportFrom) and (statement.module or "").partition(".")[0] == package


def _is_text(statement: object) -> bool:
    """Whether a statement is a docstring, which does nothing."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
