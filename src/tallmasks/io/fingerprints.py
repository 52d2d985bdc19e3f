"""Digests of Python code."""

from __future__ import annotations

import ast
import functools
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

LENGTH = 12


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
