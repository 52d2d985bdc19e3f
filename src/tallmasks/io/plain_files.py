"""Read untrusted files: refuse named pipes, which would block, and links that leave their folder."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, cut, naming, one_line

LARGEST_JSON = 1 << 24  # bytes; parsed JSON takes up to thirty times as much memory
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LONGEST = 255  # bytes of a file's name


@contextmanager
def reading(path: Path | str, expected: str) -> Iterator[None]:
    """Turn every exception into a TallmasksError that names the file and what was expected. Only for code that parses
    or checks the content of an untrusted file, which can be wrong in any way; the exception stays its cause."""
    try:
        yield
    except TallmasksError:
        raise
    except Exception as error:
        problem = str((error.strerror if isinstance(error, OSError) else "") or error)
        why = cut(one_line(f"{type(error).__name__}: {problem}".removesuffix(": ")))
        raise TallmasksError(
            f"{path}: cannot be read ({why}); expected {expected}. Copy or download it again"
        ) from error


def open_plain(path: Path | str) -> BufferedReader:
    """Open a regular file for reading in binary; links are followed. Raises TallmasksError if it is something else,
    such as a named pipe or a pointer of Git LFS, and OSError if it cannot be opened."""
    if not stat.S_ISREG(Path(path).stat().st_mode):  # checked first: opening a pipe blocks
        raise TallmasksError(f"{path} is not a regular file; expected one, not a folder, device or named pipe")
    file = Path(path).open("rb")  # noqa: SIM115 (the caller closes it)
    if file.peek().startswith(_LFS_POINTER):
        file.close()
        raise TallmasksError(f"{path} is a pointer of Git LFS, not the file; run `git lfs pull` in its repository")
    return file


def read_bytes(path: Path | str) -> bytes:
    with naming(path), open_plain(path) as file:
        return file.read()


def read_plain_json(path: Path | str, largest: int | None = None) -> Any:
    """The value of a JSON file; see :func:`open_plain` for errors. Raises ValueError if it is not JSON, nested too
    deeply, or larger than `largest` bytes (default: `LARGEST_JSON`)."""
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
    """A path with `~` replaced by the home folder. Raises TallmasksError if there is no such home folder."""
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError:
        raise TallmasksError(f"{text}: no such home folder; write ./{text} if this is a file name") from None


def is_safe(name: str) -> bool:
    """True if a relative path from an untrusted file stays inside its folder on every operating system."""
    parts = name.split("/")
    printable = name.isprintable() and not set('\\:*?"<>|') & set(name)
    return printable and all(
        part and part.strip() == part and part not in (".", "..") and len(part.encode()) <= _LONGEST for part in parts
    )


def within(root: Path, name: str) -> Path:
    """The resolved path of a file in an untrusted folder. Raises TallmasksError if a link leaves the folder (links
    within the hub's cache are allowed), and OSError or RuntimeError if it cannot be resolved."""
    folder, target = root.resolve(), (root / name).resolve()
    # in the hub's cache the files in models--*/snapshots/<commit>/ are links to models--*/blobs/
    cache = [path.parents[1] / "blobs" for path in (folder, *folder.parents) if path.parent.name == "snapshots"]
    if not any(target.is_relative_to(path) for path in (folder, *cache)):
        raise TallmasksError(
            f"{root / name} is a link to {target}, outside its folder; replace the link by the file if you trust it"
        )
    return target
