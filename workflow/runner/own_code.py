"""Imports the package `tallmasks` from this copy of the project, and from no other.

The active environment may have been installed for another copy, whose code would run unseen under this copy's
recipes.  PYTHONPATH does not help: it cannot hold a folder with a colon, and is not set where a job is run by hand.
So what is run imports this module first, which finds the package, the steps and what runs them by its own place.

    python workflow/runner/own_code.py verify ...     the command `tallmasks verify ...` with this copy's code
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

WORKFLOW = Path(__file__).resolve().parents[1]
SOURCES = WORKFLOW.parent / "src"

for folder in (WORKFLOW / "scripts", WORKFLOW / "runner", SOURCES):
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))


def check() -> None:
    """Raise TallmasksError where the package is another copy's all the same: it was imported before."""
    import tallmasks
    from tallmasks.store.errors import TallmasksError

    found = Path(tallmasks.__file__ or "").resolve().parent
    if found != SOURCES / "tallmasks":
        raise TallmasksError(
            f"the package tallmasks comes from {found}; expected this project's own, {SOURCES / 'tallmasks'}. "
            "Start it as `python workflow/runner/job.py ...`, without that folder on the search path."
        )


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before imports that take seconds: Ctrl-C is no traceback
    from tallmasks.commands.main import main

    check()
    sys.exit(main())
