"""Digests of the code of merges and methods, used in recipes.

A function in ``rows/`` counts by the sha256 of its file and of the files of ``rows/`` that this imports. Functions from
elsewhere count by name only, because stage versions cover their code.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from tallmasks.io.fingerprints import LENGTH, digest_of_code
from tallmasks.methods import rows


def code_digest(*values: Any) -> str:
    """The digest of functions, usages, names and numbers."""
    content = json.dumps(values, default=_plain, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:LENGTH]


def _plain(value: Any) -> Any:
    """A function, or a dataclass such as a usage, for JSON."""
    if not callable(value):
        return [type(value).__qualname__, vars(value)]
    if not value.__module__.startswith(f"{rows.__name__}."):
        return value.__qualname__
    file = Path(str(sys.modules[value.__module__].__file__))
    return [value.__qualname__, digest_of_code(file, Path(rows.__path__[0]))]
