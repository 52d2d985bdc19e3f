"""Digests of Python code. They ignore comments, docstrings, formatting and the Python version."""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

LENGTH = 12
_OWN = ("tallmasks", "reproduction")
"""Packages whose code is left out: the versions of stages and the digests of methods stand for it."""


def fingerprint(statements: Iterable[ast.stmt]) -> str:
    code = [_plain(statement) for statement in statements if not _is_text(statement)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:LENGTH]


@functools.cache
def digest_of_code(file: Path, folder: Path | None = None) -> str:
    """The digest of a source file and of what it imports from ``folder`` (default: its own), directly or not."""
    folder, contents, waiting = folder or file.parent, dict[str, str](), [file]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(folder).as_posix()
        if name not in contents:
            contents[name] = hashlib.sha256(path.read_bytes()).hexdigest()
            if folder.name != "site-packages":  # there it would be whole libraries
                waiting += _imported_from(folder, path)
    return hashlib.sha256(json.dumps(sorted(contents.items())).encode()).hexdigest()[:LENGTH]


def _imported_from(folder: Path, file: Path) -> Iterator[Path]:
    """The files of a folder that a file imports: `import a.b` can be b.py of the folder a, or a/b.py below it."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            parts = [part for part in (*module.split("."), *alias.name.split(".")) if part]
            for start, end in itertools.combinations(range(len(parts) + 1), 2):
                for above in {folder, file.parent}:
                    path = above.joinpath(*parts[start:end])
                    yield from filter(Path.is_file, (path.with_suffix(".py"), path / "__init__.py"))


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
