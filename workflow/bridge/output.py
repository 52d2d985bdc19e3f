"""Messages of a run in addition to Snakemake's own: progress, results, interruption."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallmasks.io.tensor_files import name_some

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
                left = f"about {_time(seconds)} left"
                print(f"{record.done} of {record.total} jobs, {left}: {self._finished}", file=sys.stderr)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def report_plan(workflow: Any, gpus: int) -> None:
    """Print how many jobs will run and, unless a cluster runs them, about how long that takes.

    The estimate uses the mean time of earlier jobs of the same rule and model.
    """
    jobs = [job for job in workflow.dag.needrun_jobs() if job.output]
    if not jobs or not workflow.local_exec:
        return
    earlier, unknown, seconds, by_threads, by_gpus = seconds_of_earlier_jobs(), dict[str, None](), [0.0], 0.0, 0.0
    for job in jobs:
        if times := earlier.get(_kind(job.rule.name, job.log)):
            seconds.append(sum(times) / len(times))
            by_threads += seconds[-1] * job.threads
            by_gpus += seconds[-1] * job.resources.get("gpu", 0)
        else:
            unknown[job.rule.name] = None
    least = max(max(seconds), by_threads / (workflow.resource_settings.cores or 1), by_gpus / max(gpus, 1))
    line = f"{len(jobs)} jobs, about {_time(least)}, estimated from earlier jobs"
    if len(seconds) == 1:
        line = f"{len(jobs)} jobs; the time left is estimated when the first of them have run"
    elif unknown:
        line += f"; not counted, because none has run here yet: {name_some(unknown)}"
    print(line, file=sys.stderr)


def seconds_of_earlier_jobs(folder: Path = Path(".snakemake/metadata")) -> dict[tuple[str, str], list[float]]:
    """The seconds of jobs by rule and model, from Snakemake's record of each output file."""
    found = defaultdict[tuple[str, str], list[float]](list)
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # a folder, or another release's record
            record = json.loads(path.read_text())
            found[_kind(record["rule"], record["log"])].append(max(record["endtime"] - record["starttime"], 0.0))
    return found


def _kind(rule: str, logs: Sequence[Any]) -> tuple[str, str]:
    """The rule and the model of a job; the log's path is logs/<model>/..."""
    return rule, Path(logs[0]).parts[1] if logs else ""


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
