"""Names of a bundle's files: safe to write whatever a task is called, and safe to read whatever somebody wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from urllib.parse import quote

from tallmasks.store.errors import TallmasksError

MANIFEST = "bundle.json"
MERGED = "merged.safetensors"
CARD = "README.md"
MASKS = "masks/"
UPDATES = "updates/"
BASE = "base/"
_LONGEST = 100


def task_files(tasks: Collection[str], folder: str) -> dict[str, str]:
    """A file of each task, ``masks/<task>.safetensors`` for instance: percent-encoded, and different in capitals too.

    Raises TallmasksError for a task's name that is no Unicode text (half of a surrogate pair).
    """
    taken: set[str] = set()
    files = {}
    for task in tasks:
        try:
            stem = quote(task, safe="").replace("~", "%7E")
        except UnicodeEncodeError:
            raise TallmasksError(f"The task {task!a} is no text that a file can hold. Give it another name.") from None
        stem = f"%2E{stem[1:]}" if stem.startswith(".") else stem
        if not stem or len(stem) > _LONGEST or stem.lower() in taken:
            # "~" is in no encoded name, so that no other task has this one
            stem = f"{stem[:_LONGEST]}~{hashlib.sha256(task.encode()).hexdigest()[:16]}"
        taken.add(stem.lower())
        files[task] = f"{folder}{stem}.safetensors"
    return files


def is_safe(name: str) -> bool:
    """Whether a relative path from somebody's file stays in its folder, on every system."""
    parts = name.split("/")
    printable = name.isprintable() and not set('\\:*?"<>|') & set(name)
    return printable and all(part and part.strip() == part and part not in (".", "..") for part in parts)
