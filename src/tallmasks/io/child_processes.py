"""Child processes that end with their parent."""

from __future__ import annotations

import ctypes
import select
import signal
import sys

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def end_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends, even if that is killed. Reading the end of
    stdin is not enough, because nothing is read during a computation. Stdin must be a pipe from the parent."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    pipe = select.poll()
    pipe.register(0, 0)  # reports only that the other end is closed
    if pipe.poll(0):  # the parent ended before the call
        sys.exit(1)
