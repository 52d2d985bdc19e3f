"""The folders that the workflow writes to, and what to do with damaged files in them."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from reproduction.artifacts.labels import ARTIFACT, Damaged, read_label
from tallmasks.errors import TallmasksError, warn

SCRATCH = Path(".tallmasks")
DAMAGED = SCRATCH / "damaged"
UNFINISHED = SCRATCH / "training"
CHECKED = SCRATCH / "checked"
STORE = Path("store")
RESULTS = Path("results")
PROVENANCE = "provenance.json"


def entries_under(folder: Path) -> Iterator[Path]:
    """All files, links and artifact-named folders under a folder, sorted. Links are not followed."""
    if not folder.is_dir():
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) and not ARTIFACT.fullmatch(entry.name):
            yield from entries_under(Path(entry.path))
        else:
            yield Path(entry.path)


def files_under(folder: Path) -> Iterator[Path]:
    return (path for path in entries_under(folder) if path.is_file() and not path.is_symlink())


def leads_nowhere(path: Path) -> bool:
    """True for broken links, named pipes and the like, on which DVC hangs or fails."""
    return not path.is_file() and not path.is_dir()


def is_artifact(path: Path) -> bool:
    """True if the file's name and header are those of an artifact."""
    try:
        return ARTIFACT.fullmatch(path.name) is not None and bool(read_label(path))
    except (Damaged, OSError):
        return False


def set_aside(path: Path, root: Path = Path()) -> str | None:
    """Move a damaged file to .tallmasks/damaged/, or delete a link. Returns what was done, None if the path is gone."""
    file = root / path
    try:
        if file.is_symlink():
            linked = file.readlink()
            file.unlink()
            return f"removed, a link to {linked}"
        target = root / DAMAGED / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, target)  # works across disks
        return f"moved to {target.relative_to(root)}"
    except FileNotFoundError:
        return None


def be_only_writer() -> None:
    """Lock the project until this process ends, also by a kill. Raises TallmasksError if another one holds the lock."""
    SCRATCH.mkdir(exist_ok=True)
    if not try_lock(os.open(SCRATCH / "writer.lock", os.O_RDWR | os.O_CREAT)):
        raise TallmasksError("another snakemake is running in this folder; wait until it ends")


def try_lock(file: int) -> bool:
    """Lock an open file; False if another process holds the lock. A disk without locks is only a warning."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        warn("this file system does not support locks, so runs and GPU jobs can collide; start one at a time")
    return True
