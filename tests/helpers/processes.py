"""Processes of the tests: their signals, and waiting for them."""

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def job_command(folder: Path, script: Path, told: Mapping[str, Any], root: Path = ROOT) -> list[str]:
    """The command of a job as the project in `root` starts it; what it is told lies in `folder`."""
    file = folder / "job.json"
    file.write_text(json.dumps(told))
    return [sys.executable, str(root / "workflow" / "runner" / "job.py"), str(script), str(file)]


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
