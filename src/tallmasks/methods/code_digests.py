"""Digests of the code of merges and methods, used in recipes.

A function in ``rows/`` counts by its file and the files of ``rows/`` that this imports, every byte of them. Functions
from elsewhere count by name only, because stage versions cover their code.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from tallmasks.io.fingerprints import LENGTH, imported_by
from tallmasks.methods import rows

_ROWS = f"{rows.__name__}."


def code_digest(*values: Any) -> str:
    """The digest of functions, protocols, names and numbers."""
    return _digest(json.dumps(values, default=_plain, sort_keys=True).encode())


def _plain(value: Any) -> Any:
    """A function, or a dataclass such as a protocol, for JSON."""
    if callable(value):
        in_rows = value.__module__.startswith(_ROWS)
        return [value.__qualname__, digest_of_module(value.__module__)] if in_rows else value.__qualname__
    return [type(value).__qualname__, vars(value)]


@functools.cache
def digest_of_module(name: str) -> str:
    """The digest of a module of ``rows`` and of the modules of ``rows`` that it imports."""
    digests: dict[str, str] = {}
    waiting = {name}
    while waiting:
        module = waiting.pop()
        path = Path(rows.__path__[0], *module.removeprefix(_ROWS).split("."))
        file = next(filter(Path.is_file, (path / "__init__.py", path.with_suffix(".py"))), None)
        if file is not None and module not in digests:
            digests[module] = _digest(file.read_bytes())
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            waiting |= {other for other in imported_by(file, package) if other.startswith(_ROWS)}
    return _digest(json.dumps([name, sorted(digests.items())]).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:LENGTH]
