"""The folders that the workflow writes to: what they are called, what lies in them, and how damage leaves them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallmasks.store.artifacts import ARTIFACT, Damaged, load_json, read_label
from tallmasks.store.errors import TallmasksError
from tallmasks.store.seals import SEAL, seal_of

SCRATCH = Path(".tallmasks")
DAMAGED = SCRATCH / "damaged"
UNFINISHED = SCRATCH / "training"
CHECKED = SCRATCH / "checked"
STORE = Path("store")
RESULTS = Path("results")
PROVENANCE = "provenance.json"


def entries_under(folder: Path) -> Iterator[Path]:
    """What lies under a folder, sorted: whatever is no folder, and a folder where an artifact should be.  Neither the
    folder itself nor anything in it is followed as a link."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) and not ARTIFACT.fullmatch(entry.name):
            yield from entries_under(Path(entry.path))
        else:
            yield Path(entry.path)


def files_under(folder: Path) -> Iterator[Path]:
    """The plain files among `entries_under`."""
    return (path for path in entries_under(folder) if path.is_file() and not path.is_symlink())


def entries_at(start: Path) -> list[Path]:
    """A file itself, or the `entries_under` a folder."""
    return list(entries_under(start)) if start.is_dir() else [start]


def leads_nowhere(path: Path) -> bool:
    """Whether this is neither a file nor a folder: a named pipe, say, for which DVC waits for ever, or a link to
    nothing, at which it fails."""
    return not path.is_file() and not path.is_dir()


def is_artifact(path: Path) -> bool:
    """Whether the workflow made this file, as far as its header says: its recipe is the one that its name carries."""
    try:
        return ARTIFACT.fullmatch(path.name) is not None and bool(read_label(path))
    except (Damaged, OSError):
        return False


def set_aside(path: Path, root: Path = Path()) -> str | None:
    """Move what is damaged or made from damage to .tallmasks/damaged/, where nothing looks for it; say so in words.

    A link is removed instead.  None where somebody else has done so already.
    """
    place = root / path
    try:
        if place.is_symlink():
            led_to = place.readlink()
            place.unlink()
            return f"removed, a link to {led_to}"
        target = root / DAMAGED / path
        target.parent.mkdir(parents=True, exist_ok=True)
        while target.exists():
            target = target.with_name(f"{target.name}.{secrets.token_hex(2)}")
        place.rename(target)
        return f"moved to {target.relative_to(root)}"
    except FileNotFoundError:
        return None


def provenance_of(folder: Path, name: str = PROVENANCE) -> dict[str, Any]:
    """A provenance that vouches for some files of a results folder, checked with all of them.

    Raises Damaged where it is not there or not what was written, or one of the files is not.
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
def only_writer(root: Path = Path()) -> Iterator[None]:
    """Hold the lock that a running snakemake holds.

    Raises TallmasksError where a snakemake is at work in this folder.
    """
    (root / SCRATCH).mkdir(exist_ok=True)
    with (root / SCRATCH / "writer.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TallmasksError("a snakemake is at work in this folder; wait for it to end") from None
        yield
