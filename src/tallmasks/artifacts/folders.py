"""The folders that the workflow writes to: what they are called, what lies in them, and how damage leaves them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallmasks.artifacts.labels import ARTIFACT, Damaged, load_json, read_label
from tallmasks.errors import TallmasksError
from tallmasks.io.seals import SEAL, seal_of

SCRATCH = Path(".tallmasks")
DAMAGED = SCRATCH / "damaged"
UNFINISHED = SCRATCH / "training"
CHECKED = SCRATCH / "checked"
STORE = Path("store")
RESULTS = Path("results")
PROVENANCE = "provenance.json"


def entries_under(folder: Path) -> Iterator[Path]:
    """What lies under a folder, sorted: everything but folders, and folders named as artifacts.  Follows no links in
    it."""
    if not folder.is_dir():
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) and not ARTIFACT.fullmatch(entry.name):
            yield from entries_under(Path(entry.path))
        else:
            yield Path(entry.path)


def files_under(folder: Path) -> Iterator[Path]:
    """The plain files among `entries_under`."""
    return (path for path in entries_under(folder) if path.is_file() and not path.is_symlink())


def leads_nowhere(path: Path) -> bool:
    """Whether this is neither a file nor a folder: a named pipe or a broken link, at which DVC hangs or fails."""
    return not path.is_file() and not path.is_dir()


def is_artifact(path: Path) -> bool:
    """Whether the workflow made this file, as far as its header and name say."""
    try:
        return ARTIFACT.fullmatch(path.name) is not None and bool(read_label(path))
    except (Damaged, OSError):
        return False


def set_aside(path: Path, root: Path = Path()) -> str | None:
    """Move a damaged file to .tallmasks/damaged/, or remove a link, and say so; None where it is already gone."""
    file = root / path
    try:
        if file.is_symlink():
            led_to = file.readlink()
            file.unlink()
            return f"removed, a link to {led_to}"
        target = root / DAMAGED / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, target)  # also to another disk
        return f"moved to {target.relative_to(root)}"
    except FileNotFoundError:
        return None


def provenance_of(folder: Path, name: str = PROVENANCE) -> dict[str, Any]:
    """A provenance in a results folder, checked with all files that it vouches for.

    Raises Damaged where it or one of the files is not there or not what was written.
    """
    path = folder / name
    try:
        if not path.is_file():
            raise Damaged(path, "is not there")
        provenance = load_json(path)
        if provenance[SEAL] != seal_of(provenance):
            raise Damaged(path, "is not what was written there: its seal is broken")
        for name_of_file, expected in provenance["sha256"].items():
            file = folder / name_of_file
            if not file.is_file():
                raise Damaged(file, "is not there")
            with file.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            if digest != expected:
                raise Damaged(file, f"is not what was written there: its sha256 is not the one in {name}")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OSError):
        raise Damaged(path, "cannot be read, or does not say what it vouches for and what that was made from") from None
    return provenance


@contextmanager
def only_writer() -> Iterator[None]:
    """Hold the lock of a running snakemake.  Raises TallmasksError where a snakemake is at work in this folder."""
    SCRATCH.mkdir(exist_ok=True)
    with (SCRATCH / "writer.lock").open("a") as lock:
        if try_lock(lock.fileno()) is False:
            raise TallmasksError("a snakemake is at work in this folder; wait for it to end")
        if any(Path(".snakemake/locks").glob("*.lock")):  # on a disk without the kernel's
            raise TallmasksError("a snakemake is at work in this folder, or was killed: `snakemake --unlock`")
        yield


def try_lock(file: int) -> bool | None:
    """Take the kernel's lock on an open file: False where another process has it, None on a disk without locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        return None
    return True
