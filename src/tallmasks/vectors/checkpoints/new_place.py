"""A file or folder that appears whole at its place or not at all, and leaves nothing that the next one cannot remove.

It is built under a hidden name beside its place.  Who builds it holds a lock on that name: what nobody holds was left
by a process that was killed, and goes when somebody next builds for the same place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallmasks.store.errors import TallmasksError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ENDING = "new.tmp"


@contextmanager
def new_place(out: Path, needed: int, *, is_folder: bool) -> Iterator[Path]:
    """The hidden place to build at; on a clean exit it is fsynced and gets its name.

    Args:
        out: where nothing is, or an empty folder if `is_folder`.
        needed: bytes; refused at once where the disk has less.

    Raises:
        TallmasksError: there is something already, or there is no room for it.
    """
    refuse_existing(out, is_folder)
    parent = out.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_left(parent, out.name)
        if (free := shutil.disk_usage(parent).free) < needed:
            raise no_room(out, needed, free)
        temporary, lock = _locked(parent, out.name, is_folder)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise no_room(out, needed, 0) from error
        raise TallmasksError(f"{out}: {error.strerror}; expected a place that can be written to") from error
    try:
        yield temporary
        _fsync_all(temporary)
        refuse_existing(out, is_folder)
        _rename(temporary, out)
        _fsync(parent)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise no_room(out, needed, shutil.disk_usage(parent).free) from error
    finally:
        _remove(temporary)
        os.close(lock)


def refuse_existing(out: Path, is_folder: bool) -> None:
    """Raises TallmasksError where something is in the way; an empty folder is none for a folder."""
    if is_folder and out.is_dir() and not out.is_symlink() and not any(out.iterdir()):
        return
    if os.path.lexists(out):
        raise TallmasksError(
            f"{out} is there already; expected a new place{' or an empty folder' if is_folder else ''}. Name another,"
            " or remove it"
        )


def no_room(out: Path, needed: int, free: int) -> TallmasksError:
    """The error of a disk without room."""
    return TallmasksError(
        f"{out}: no space for the {needed} bytes it needs ({free} are free). Nothing was written; free some space, or"
        " name a place on another disk"
    )


def _rename(temporary: Path, out: Path) -> None:
    try:
        temporary.replace(out)
    except OSError as error:
        raise TallmasksError(f"{out}: {error.strerror}; expected a new place. Nothing was written there") from error


def _locked(parent: Path, name: str, is_folder: bool) -> tuple[Path, int]:
    """A new hidden file or folder and the lock on it."""
    while True:
        temporary = parent / f".{name[:100]}.{secrets.token_hex(6)}.{_ENDING}"
        if is_folder:
            temporary.mkdir()
        else:
            temporary.touch(exist_ok=False)
        descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.ENOLCK, errno.ENOTSUP):
                os.close(descriptor)
                raise
        if temporary.exists():  # else somebody took it for left, before it was locked
            return temporary, descriptor
        os.close(descriptor)


def _remove_left(parent: Path, name: str) -> None:
    """Remove what killed processes have left of this place."""
    pattern = re.compile(rf"\.{re.escape(name[:100])}\.[0-9a-f]{{12}}\.{re.escape(_ENDING)}")
    for path in [parent / entry.name for entry in os.scandir(parent) if pattern.fullmatch(entry.name)]:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        except OSError:  # its owner lives, or the disk knows no locks
            pass
        finally:
            os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _fsync_all(path: Path) -> None:
    for inner in path.rglob("*") if path.is_dir() else ():
        _fsync(inner)
    _fsync(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
