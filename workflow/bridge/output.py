"""Messages of a run in addition to Snakemake's own: progress, results, interruption."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

SHOWN = 10  # results to list at the end


class ProgressLines(logging.Handler):
    """Prints one line per finished job, with the number of finished jobs and the estimated time left."""

    def __init__(self) -> None:
        super().__init__()
        self._start, self._names, self._finished = time.monotonic(), dict[int, str](), ""

    def emit(self, record: Any) -> None:
        match getattr(record, "event", None):
            case "job_info":
                self._names[record.jobid] = " ".join([record.rule_name, *map(str, record.wildcards.values())])
            case "job_finished":
                self._finished = self._names.get(record.job_id, "")
            case "progress":
                seconds = (time.monotonic() - self._start) / max(record.done, 1) * (record.total - record.done)
                left = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
                print(f"{record.done} of {record.total} jobs, about {left} left: {self._finished}", file=sys.stderr)


def report_progress(logger: logging.Logger) -> None:
    """Print progress lines if stderr is not a terminal; on a terminal Snakemake shows a progress bar."""
    if not sys.stderr.isatty():
        logger.addHandler(ProgressLines())


def report_interruption() -> None:
    """After Ctrl-C, print one message and nothing else: Snakemake would report every job that the signal ended as
    failed, with its log.  Ignore further Ctrl-C, because all jobs are already ending."""

    def interrupted(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        show_cursor = "\033[?25h" if os.isatty(terminal) else ""  # progress bars hide it
        message = "Interrupted. Nothing is lost: call the same command again, and it continues."
        os.write(terminal, f"\n{show_cursor}{message}\n".encode())
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)


def show_results(workflow: Any) -> None:
    """Print the paths of the requested files, and on a terminal the tables themselves."""
    files = sorted(file for file in map(str, workflow.dag.targetfiles) if file.startswith("results/"))
    for file in files[:SHOWN]:
        print(file)
        table = Path(file).with_suffix(".md")
        if sys.stdout.isatty() and file.endswith(".csv") and table.is_file():
            print(table.read_text())
    if len(files) > SHOWN:
        print(f"and {len(files) - SHOWN} more")
