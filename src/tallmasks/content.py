"""The content of whole folders, as a digest that is computed once while the files stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tallmasks.errors import TallmasksError

REMEMBERED = Path(".tallmasks", "content")  # in the current folder: the checksums of data folders, by their path


def named_path(root: Path, written: str) -> Path:
    """Where a path of params.yaml leads: from the folder `root` if it is relative, from a home folder if it begins
    with ~ as in a shell.

    Raises:
        TallmasksError: there is no such home folder.
    """
    try:
        return root / Path(written).expanduser()
    except RuntimeError as error:
        raise TallmasksError(f"params.yaml: {written}: {error}; write the path out") from None


def sha256_of_folder(folder: Path) -> str:
    """sha256 over the names and contents of all files under a folder, links followed, hidden files left out.

    What is read is remembered in the project's scratch folder by file, size and time of change, so that tens of
    gigabytes are read once and not at every plan, and a cluster job's own plan reads nothing.
    """
    memory = REMEMBERED / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}.json"
    known: dict[str, list[int | str]] = {}
    with suppress(OSError, ValueError):
        known = json.loads(memory.read_text())
    found: dict[str, list[int | str]] = {}
    for path in sorted(_files(folder)):
        name, stat = path.relative_to(folder).as_posix(), path.stat()
        size_and_time = [stat.st_size, stat.st_mtime_ns]
        if known.get(name, [])[:2] == size_and_time:
            found[name] = known[name]
        else:
            with path.open("rb") as file:
                found[name] = [*size_and_time, hashlib.file_digest(file, "sha256").hexdigest()]
    if found != known:
        with suppress(OSError):  # a folder that cannot be written to: then it is read again
            REMEMBERED.mkdir(parents=True, exist_ok=True)
            new = memory.with_suffix(f".{secrets.token_hex(4)}")
            new.write_text(json.dumps(found))
            new.replace(memory)
    listing = "".join(f"{entry[2]}  {name}\n" for name, entry in found.items())
    return hashlib.sha256(listing.encode()).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))
