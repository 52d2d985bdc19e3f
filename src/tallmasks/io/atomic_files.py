"""Atomic writing of files and folders. Each is built under a hidden, locked name next to its destination. The next
writer removes leftovers of killed processes."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tallmasks.errors import TallmasksError, naming

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")


@contextmanager
def atomic_path(path: Path | str, size: int = 0, *, folder: bool = False, new: bool = False) -> Iterator[Path]:
    """Yield a hidden path to build a file or folder at; on a clean exit it is fsynced and renamed to ``path``.

    Parent folders are created. ``size``: bytes to reserve on the disk. ``new``: raise if ``path`` exists (except an
    empty folder); otherwise a file is replaced. Raises TallmasksError if the disk is full, or with `new` if it cannot
    write.
    """
    path, ours = Path(path), True
    try:
        if new:
            refuse_existing(path, folder)
        with hidden_beside(path, folder=folder) as temporary:
            if folder and shutil.disk_usage(temporary).free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if size and not folder:  # otherwise a full disk is a SIGBUS in a memory map
                with temporary.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, size)
            ours = False
            yield temporary
            ours = True
            for part in (*(temporary.rglob("*") if folder else ()), temporary):
                _fsync(part)
            if new:
                refuse_existing(path, folder)
            temporary.replace(path)
            _fsync(path.parent)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise no_disk_space(path, size) from error
        if new and ours:
            raise TallmasksError(f"{path} cannot be written ({error.strerror}); choose another path") from error
        with naming(path):
            raise


def atomic_write_bytes(path: Path | str, content: bytes) -> None:
    """Write a small file atomically."""
    with atomic_path(path, len(content)) as hidden:
        hidden.write_bytes(content)


def atomic_write_text(path: Path | str, text: str) -> None:
    """As :func:`atomic_write_bytes`, in UTF-8."""
    atomic_write_bytes(path, text.encode())


@contextmanager
def hidden_beside(path: Path, *, folder: bool = True) -> Iterator[Path]:
    """Create a hidden folder (or file) next to a path; it is removed at the end, or by the next writer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left(path)
    temporary, lock = locked_beside(path, folder)
    try:
        yield temporary
    finally:
        remove(temporary)
        os.close(lock)


def refuse_existing(path: Path, folder: bool) -> None:
    """Raise TallmasksError if ``path`` exists. An empty folder may be replaced by a new folder."""
    if folder and path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        return
    if os.path.lexists(path):
        raise TallmasksError(f"{path} already exists; choose another path or remove it")


def refuse_inside(path: Path, *inputs: str | Path) -> None:
    """Raise TallmasksError if ``path`` is inside one of the inputs: a later reading of that folder would include it."""
    for folder in filter(os.path.isdir, inputs):
        if path.resolve().is_relative_to(Path(folder).resolve()):
            raise TallmasksError(f"{path} is inside of {folder}, which is an input; choose a path outside of it")


def no_disk_space(path: Path, size: int) -> TallmasksError:
    free = shutil.disk_usage(next(parent for parent in path.absolute().parents if parent.exists())).free
    more = ", but files take whole blocks" if free >= size else ""
    return TallmasksError(
        f"{path}: no space on the disk: {size} bytes are needed, {free} are free{more}. Nothing was written; free some"
        " space and run again, or choose a path on another disk"
    )


def locked_beside(path: Path, folder: bool, mode: int = 0o777) -> tuple[Path, int]:
    """Create a hidden folder (or file) next to a path. Returns it with its lock, which the kernel keeps until the file
    descriptor is closed or the process ends."""
    while True:
        temporary = path.parent / f".{path.name[:100]}.{secrets.token_hex(6)}.tmp"
        if folder:
            temporary.mkdir(mode)
        else:
            temporary.touch(exist_ok=False)
        lock = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):  # another writer is removing it, or the disk has no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if temporary.exists():
            return temporary, lock
        os.close(lock)


def remove_left(path: Path) -> None:
    """Remove what killed processes left next to a path."""
    names = [entry.name for entry in os.scandir(path.parent) if TEMPORARY.fullmatch(entry.name)]
    for left in (path.parent / hidden for hidden in names if hidden[1:-17] == path.name[:100]):
        with suppress(OSError):  # its owner is alive, or the disk has no locks
            lock = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(left)
            finally:
                os.close(lock)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
