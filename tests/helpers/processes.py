"""Processes of the tests: their signals, and waiting for them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

WARM = Path(__file__).parents[2] / "workflow" / "runner" / "warm.py"


def job_command(folder: Path, script: Path, told: Mapping[str, Any]) -> list[str]:
    """The command of a job as its log gives it; what it is told lies in `folder`."""
    file = folder / "job.json"
    file.write_text(json.dumps(told))
    return [sys.executable, str(script), str(file)]


def serve(warm: Path) -> subprocess.Popen[str]:
    """Start a warm Python in the folder `warm`, which ends with this process."""
    warm.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    server = subprocess.Popen(
        [sys.executable, str(WARM), "--serve"],
        env={**kept, "TALLMASKS_WARM": str(warm)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert server.stdout and server.stdout.readline() == "listening\n"
    return server


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
