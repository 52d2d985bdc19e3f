"""Digests of Python code. They ignore comments, docstrings, formatting and the Python version."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path

LENGTH = 12
_OWN = ("tallmasks", "reproduction")
"""Packages whose code is left out: the versions of stages and the digests of methods stand for it."""


def fingerprint(statements: Iterable[ast.stmt]) -> str:
    code = [_plain(statement) for statement in statements if not _is_text(statement)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:LENGTH]


@functools.cache
def fingerprint_of_file(path: Path) -> str:
    """The digest of a source file without its imports of the project; cached for the life of the process."""
    statements = ast.parse(path.read_bytes()).body
    return fingerprint(statement for statement in statements if not is_own_import(statement))


@functools.cache
def fingerprint_of_module(name: str) -> str:
    """The digest of a user's module and of the modules it imports from its own package or folder."""
    spec = importlib.util.find_spec(name)
    file = Path(str(spec.origin if spec else None))
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    installed, package = root.name in ("site-packages", "dist-packages"), name.partition(".")[0]
    digests: dict[str, str] = {}
    waiting = {name}
    while waiting:
        module = waiting.pop()
        top, path = module.partition(".")[0], root.joinpath(*module.split("."))
        files = [file] if module == name else [path / "__init__.py", path.with_suffix(".py")]
        there = next(filter(Path.is_file, files), None)
        if there is None or module in digests or top in _OWN or (installed and top != package):
            continue
        digests[module] = fingerprint_of_file(there)
        waiting |= imported_by(there, module if there.name == "__init__.py" else module.rpartition(".")[0])
        waiting |= {module.rsplit(".", depth)[0] for depth in range(module.count(".") + 1)}  # its parent packages
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()[:LENGTH]


def imported_by(path: Path, package: str) -> set[str]:
    """Full names of all modules and members that a file imports; ``package`` resolves relative imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            module = ".".join(filter(None, [above if node.level else "", node.module]))
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return names


def _plain(value: object) -> object:
    if isinstance(value, ast.AST):
        fields = ((name, inner) for name, inner in ast.iter_fields(value) if inner not in (None, []) and name != "kind")
        return [type(value).__name__, *([name, _plain(inner)] for name, inner in fields)]
    if isinstance(value, list):
        return [_plain(inner) for inner in value if not _is_text(inner)]
    return repr(value)


def is_own_import(statement: ast.stmt) -> bool:
    """An import from the project under the names that the code uses: what it uses is in the code."""
    of_own = isinstance(statement, ast.ImportFrom) and (statement.module or "").partition(".")[0] in _OWN
    return of_own and not any(alias.asname for alias in statement.names)  # type: ignore[attr-defined]


def _is_text(statement: object) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
