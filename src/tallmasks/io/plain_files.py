"""Reading files from somebody else: no named pipes, which never end, and no links out of their folder."""

from __future__ import annotations

import json
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, naming

LARGEST_JSON = 1 << 24
"""Bytes of somebody's JSON file at most: parsed, it takes up to thirty times as many."""


def open_plain(path: Path | str) -> BufferedReader:
    """A plain file, open for reading in binary; links to plain files are followed.

    Raises:
        TallmasksError: there is something else, such as a named pipe.
        OSError: there is nothing, or it cannot be opened.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):  # before it is opened: a pipe makes one wait, a device may act
        raise TallmasksError(f"{path} is no plain file; expected one: name another, or put one in its place")
    return Path(path).open("rb")


def read_bytes(path: Path | str) -> bytes:
    """The whole content of a plain file; see :func:`open_plain` for errors."""
    with naming(path), open_plain(path) as file:
        return file.read()


def read_plain_json(path: Path | str, largest: int | None = None) -> Any:
    """The value of a JSON file; see :func:`open_plain` for errors.

    Raises ValueError where it is no JSON, nested too deeply, or larger than `LARGEST_JSON`, or so many bytes.
    """
    largest = largest or LARGEST_JSON
    with open_plain(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it is larger than {largest} bytes")
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def expanded(text: str) -> str:
    """A path with `~` replaced by the home folder.  Raises TallmasksError where there is no such home."""
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError:
        raise TallmasksError(f"{text}: there is no such home folder; expected a path. Write ./{text} for it") from None


def within(root: Path, name: str) -> Path:
    """The file of a folder from somebody, links followed.

    Raises:
        TallmasksError: a link leads out of the folder (and out of the hub's cache, where the folder lies in it).
        OSError, RuntimeError: it cannot be looked at, or is a link that leads to itself.
    """
    folder, target = root.resolve(), (root / name).resolve()
    # in the hub's cache the files of models--*/snapshots/<commit>/ are links to models--*/blobs/
    cache = [path.parents[1] / "blobs" for path in (folder, *folder.parents) if path.parent.name == "snapshots"]
    if not any(target.is_relative_to(path) for path in (folder, *cache)):
        raise TallmasksError(
            f"{root / name} leads out of its folder, to {target}; put the file in its place if you trust it"
        )
    return target
