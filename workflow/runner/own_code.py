"""Imports the package `tallmasks` from this copy of the project, and from no other.

The active environment may have been installed for another copy, whose code would run unseen under this copy's
recipes.  PYTHONPATH does not help: it cannot hold a folder with a colon, and is not set where a job is run by hand.
So what is run imports this module first.  It finds the package, the steps and what runs them by its own place.

    python workflow/runner/own_code.py verify ...     the command `tallmasks verify ...` with this copy's code
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

WORKFLOW = Path(__file__).resolve().parents[1]
SOURCES = WORKFLOW.parent / "src"

for folder in (WORKFLOW / "scripts", WORKFLOW / "runner", SOURCES):
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))


def _sources(folder: Path) -> Iterator[str]:
    """The source files under a folder; what editors leave beside them is none."""
    for place, folders, files in os.walk(folder):
        folders[:] = set(folders) - {"__pycache__"}
        yield from (f"{place}/{name}" for name in files if name[0] not in ".#" and name[-1] != "~")


def _identity(path: str) -> tuple[int, int, int] | None:
    """A file's inode, size and time of modification; None where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  (three times as fast as Path.stat)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


FOLDERS = (SOURCES / "tallmasks", WORKFLOW / "scripts", WORKFLOW / "runner")
AT_START = {path: _identity(path) for folder in FOLDERS for path in _sources(folder)}
"""Taken before anything else of the project is imported."""


_SETTLED: set[str] = set()
"""What was imported when it was last compared: a later edit does not reach it."""


def check_unchanged() -> None:
    """Raise TallmasksError where a file that this process imported, or its data, changed since it started: some of the
    code may be from before, and some from after a `git checkout`."""
    changed = {path for path, identity in AT_START.items() if _identity(path) != identity} - _SETTLED
    files = {vars(module).get("__file__") for module in list(sys.modules.values())}
    imported = AT_START.keys() & {str(Path(sys.argv[0]).resolve()), *files}
    if edited := sorted(path for path in changed if path in imported or not path.endswith(".py")):
        from tallmasks.store.errors import TallmasksError

        more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
        raise TallmasksError(
            f"{Path(edited[0]).relative_to(WORKFLOW.parent)}{more} changed while this job ran, as after `git checkout` "
            "of another branch; nothing was written: call the same command again, and it runs with the new code"
        )
    _SETTLED.update(imported)


def check() -> None:
    """Raise TallmasksError where the package is another copy's all the same: it was imported before."""
    import tallmasks
    from tallmasks.store.errors import TallmasksError

    package = Path(tallmasks.__file__ or "").resolve().parent
    if package != SOURCES / "tallmasks":
        raise TallmasksError(
            f"the package tallmasks comes from {package}; expected this project's own, {SOURCES / 'tallmasks'}. "
            "Start it as `python workflow/runner/job.py ...`, without that folder on the search path."
        )


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before imports that take seconds: Ctrl-C is no traceback
    from tallmasks.commands.main import main

    check()
    sys.exit(main())
