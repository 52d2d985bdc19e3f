"""Temporary folders of which a killed process leaves nothing for long."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from weakref import finalize

from tallmasks.io.atomic_files import locked_beside, remove, remove_left


class TemporaryFolder:
    """Like `tempfile.TemporaryDirectory`, but the next one that any process creates removes it if its own process was
    killed. ``path`` exists until the end of a `with` block, of this object or of the program."""

    def __init__(self) -> None:
        beside = Path(tempfile.gettempdir(), f"tallmasks-{os.getuid()}")
        remove_left(beside)
        self.path, lock = locked_beside(beside, folder=True, mode=0o700)
        self._end = finalize(self, _end, self.path, lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self._end()


def _end(path: Path, lock: int) -> None:
    remove(path)
    os.close(lock)
