"""Files that appear whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tallmasks.store.errors import TallmasksError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
"""Linux's; elsewhere an fsync has all to do."""
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
BEFORE_RENAME: list[Callable[[], None]] = []
"""Called before a file gets its name; where one raises, there is no file."""


def atomic_write_bytes(path: Path | str, content: bytes, *, read_only: bool = True) -> None:
    """Write a small file whole or not at all; read-only unless it is a view that people may edit."""
    with atomic_file(Path(path), len(content), read_only) as file:
        file.write(content)


def atomic_write_text(path: Path | str, text: str, *, read_only: bool = True) -> None:
    """As :func:`atomic_write_bytes`, in UTF-8."""
    atomic_write_bytes(path, text.encode(), read_only=read_only)


@contextmanager
def atomic_file(path: Path, size: int, read_only: bool = True) -> Iterator[BinaryIO]:
    """A file of ``size`` bytes under a temporary name, fsynced and renamed to ``path`` on a clean exit.

    The space is taken from the disk before anything is written, so that a full disk is an error here and not
    a bus error in a memory map.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("x+b") as file:
            if size:
                os.posix_fallocate(file.fileno(), 0, size)
            yield file
            file.flush()
            if read_only:
                os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o444)
            os.fsync(file.fileno())
        for check in BEFORE_RENAME:
            check()
        temporary.replace(path)
        _fsync_folder(path.parent)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise TallmasksError(
            f"{path}: no space for the {size} bytes it needs ({os.strerror(error.errno)}). Nothing was written;"
            " free some space and run again."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def begin_to_write(descriptor: int, start: int, size: int) -> None:
    """Have the kernel bring bytes of a file to the disk while other work is done, so that an fsync has less to wait
    for.  A hint: nothing follows from it, and what it answers does not matter."""
    if _SYNC_FILE_RANGE and size:  # of 0 bytes it would mean all that follows
        _SYNC_FILE_RANGE(descriptor, ctypes.c_int64(start), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
