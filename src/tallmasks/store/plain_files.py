"""What lies in a file's place: plain files only, within the project.

Whoever opens a named pipe waits for ever, and whoever writes into a folder that is a link writes elsewhere.  Both are
refused by name, here for all who read and write.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from tallmasks.store.errors import TallmasksError

LARGEST_JSON = 1 << 24
"""Bytes of somebody's JSON file at most: parsed, it takes up to thirty times as many."""
_KINDS = {
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def plain(path: Path | str) -> Path:
    """The path of a plain file, for a library that opens it by itself; links to plain files are followed.

    Raises:
        TallmasksError: there is something else, such as a named pipe, or a link that leads to itself.
        OSError: there is nothing, or it cannot be looked at.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise TallmasksError(
            f"{path} is a link that leads to itself; expected a plain file. Remove the link."
        ) from None
    _refuse(path, mode)
    return Path(path)


def open_plain(path: Path | str) -> BufferedReader:
    """A plain file, open for reading in binary; see :func:`plain` for errors.  Nothing makes it wait."""
    plain(path)  # a device may act when it is opened
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _refuse(path, os.fstat(file.fileno()).st_mode)
    except TallmasksError:
        file.close()
        raise
    return file


def read_bytes(path: Path | str) -> bytes:
    """The whole content of a plain file; see :func:`plain` for errors."""
    with open_plain(path) as file:
        return file.read()


def read_text(path: Path | str) -> str:
    """As :func:`read_bytes`, as UTF-8; UnicodeDecodeError, a ValueError, where it is none."""
    return read_bytes(path).decode()


def read_json(path: Path | str) -> Any:
    """What a JSON file says; see :func:`plain` for errors.

    Raises ValueError where it is no JSON, nested too deeply, or larger than `LARGEST_JSON`.
    """
    with open_plain(path) as file:
        content = file.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise ValueError(f"it is larger than {LARGEST_JSON} bytes")
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def within(root: Path, name: str) -> Path:
    """The file of a folder from somebody, links followed.

    Raises:
        TallmasksError: a link leads out of the folder (and out of the hub's cache, where the folder lies in it).
        OSError, RuntimeError: it cannot be looked at, or is a link that leads to itself.
    """
    folder, target = root.resolve(), (root / name).resolve()
    # in the hub's cache the files of models--*/snapshots/<commit>/ are links to models--*/blobs/
    cache = [place.parents[1] / "blobs" for place in (folder, *folder.parents) if place.parent.name == "snapshots"]
    if not any(target.is_relative_to(place) for place in (folder, *cache)):
        raise TallmasksError(
            f"{root / name} leads out of its folder, to {target}; expected a file of the folder's own. Put the file in"
            " the place of the link where you trust it"
        )
    return target


def inside(path: Path, root: Path | None = None) -> Path:
    """The path itself, to be written to; it need not be there.

    Raises:
        TallmasksError: a symbolic link or `..` leads out of `root`, by default the current folder.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise TallmasksError(f"{path} is a link that leads to itself; remove the link") from None
    target = path.resolve()
    if not target.is_relative_to((root or Path()).resolve()):
        raise TallmasksError(
            f"{path} leads out of the project, to {target}; expected a place of its own, since the workflow writes "
            "nothing elsewhere: remove the link (DVC's cache may lie on another disk: docs/store.md)"
        )
    return path


def all_inside(folder: Path, root: Path | None = None) -> None:
    """Refuse a folder that is or holds a symbolic link out of `root`, as :func:`inside` does, at any depth."""
    inside(folder, root)
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                inside(Path(entry.path), root)
            elif entry.is_dir():
                all_inside(Path(entry.path), root)


def _refuse(path: Path | str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        found = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise TallmasksError(f"{path} is {found}; expected a plain file. Remove it and run again.")
