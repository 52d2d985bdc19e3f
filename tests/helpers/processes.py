"""Processes of the tests: their signals, and waiting for them."""

import signal
import time
from collections.abc import Callable
from pathlib import Path


def default_signals() -> None:
    """For `preexec_fn`: a child hears Ctrl-C also where the tests run in the background of a shell, which ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def gone(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)
