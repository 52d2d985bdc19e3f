"""sha256 of source files and folders, computed once while the files stay the same."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tallmasks.errors import TallmasksError
from tallmasks.io.atomic_files import atomic_write_text
from tallmasks.io.plain_files import open_plain

REMEMBERED = Path(".tallmasks", "content")  # checksums of data folders, by path
# Inode, size, mtime and ctime. ctime changes with every write and cannot be set; a replaced file has another inode.
Identity = tuple[int, int, int, int]


def named_path(root: Path, written: str) -> Path:
    """A path from params.yaml, relative to `root` or with ~. Raises TallmasksError if the home folder is unknown."""
    try:
        return root / Path(written).expanduser()
    except RuntimeError as error:
        raise TallmasksError(f"params.yaml: {written}: {error}; write the full path") from None


def sha256_of_file(path: Path) -> str:
    """sha256 of a regular file, cached in the process while its identity stays the same. Raises TallmasksError if it
    cannot be read."""
    return _sha256(str(path), _identity(path))


def sha256_of_folder(folder: Path) -> str:
    """sha256 over the names and contents of all files under a folder. Links are followed, hidden files skipped.

    File digests are cached in .tallmasks/content, so unchanged files are not read again. Raises TallmasksError if
    something cannot be read.
    """
    memory = REMEMBERED / f"{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]}.json"
    remembered: dict[str, list[int | str]] = {}
    with suppress(OSError, ValueError):
        remembered = json.loads(memory.read_text())
    current: dict[str, list[int | str]] = {}
    for path in sorted(_files(folder)):
        name, identity = path.relative_to(folder).as_posix(), _identity(path)
        same = remembered.get(name, [])[:-1] == [*identity]
        current[name] = remembered[name] if same else [*identity, _sha256(str(path), identity)]
    if current != remembered:
        with suppress(OSError, TallmasksError):  # not writable: the files are read again next time
            atomic_write_text(memory, json.dumps(current))
    return hashlib.sha256(b"".join(_line(name, str(entry[-1])) for name, entry in current.items())).hexdigest()


def _line(name: str, sha256: str) -> bytes:
    """One line as sha256sum prints it; names with a line break are escaped."""
    line = f"{sha256}  {name}"
    if "\n" in name:
        line = "\\" + line.replace("\\", "\\\\").replace("\n", "\\n")
    return os.fsencode(line) + b"\n"


def _identity(path: Path) -> Identity:
    try:
        stat = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@functools.lru_cache(maxsize=4096)
def _sha256(path: str, identity: Identity) -> str:
    try:
        with open_plain(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(Path(path), error) from None
    return digest


def _files(folder: Path) -> Iterator[Path]:
    """Every file under a folder, including broken links, which raise an error later when they are read."""
    try:
        entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise _unreadable(folder, error) from None
    for path in entries:
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _unreadable(path: Path, error: OSError) -> TallmasksError:
    return TallmasksError(f"{path}: {error.strerror}; expected a readable file or folder")
