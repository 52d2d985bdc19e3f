"""Messages of a run in addition to Snakemake's own: progress, results, interruption."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tallmasks.errors import counted
from tallmasks.io.tensor_files import name_some

SHOWN = 10  # results to list at the end
Times = defaultdict[tuple[str, str], list[float]]
"""The seconds of jobs that have ended, by rule and model."""


class ProgressLines(logging.Handler):
    """Prints one line per finished job, with the number of finished jobs and the estimated time left."""

    def __init__(self, workflow: Any, gpus: int) -> None:
        super().__init__()
        self._workflow, self._gpus, self._finished = workflow, gpus, ""
        self._left = {job.jobid: job for job in workflow.dag.needrun_jobs()}
        self._times, self._started = seconds_of_earlier_jobs(), dict[int, float]()

    def emit(self, record: Any) -> None:
        match getattr(record, "event", None):
            case "job_started":
                self._started |= dict.fromkeys(record.jobs, time.monotonic())
            case "job_finished":
                job = self._left.pop(record.job_id)
                if record.job_id in self._started:  # not in a group
                    self._times[_kind(job)].append(time.monotonic() - self._started[record.job_id])
                self._finished = " ".join([job.rule.name, *map(str, job.wildcards_dict.values())])
            case "progress":
                seconds, unknown = time_of(self._left.values(), self._times, self._workflow, self._gpus)
                left = f", {'at least' if unknown else 'about'} {_time(seconds)} left" if seconds else ""
                print(f"{record.done} of {record.total} jobs{left}: {self._finished}", file=sys.stderr)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def report_plan(workflow: Any, gpus: int) -> None:
    """Print how many jobs will run and, unless a cluster runs them, about how long that takes."""
    jobs = [job for job in workflow.dag.needrun_jobs() if job.output]
    if not jobs or not workflow.local_exec:
        return
    seconds, unknown = time_of(jobs, seconds_of_earlier_jobs(), workflow, gpus)
    line = f"{counted(len(jobs), 'job')}, about {_time(seconds)}, estimated from earlier jobs"
    if not seconds:
        line = f"{counted(len(jobs), 'job')}; the time left is estimated when the first of them have run"
    elif unknown:
        line += f"; not counted, because too few have run here yet: {name_some(unknown)}"
    print(line, file=sys.stderr)


def time_of(jobs: Iterable[Any], times: Times, workflow: Any, gpus: int) -> tuple[float, list[str]]:
    """The seconds that jobs take on this machine, from the mean time of their kinds, and the rules that are not
    counted: of several jobs of a kind at least two must have ended. On a cluster no time is known."""
    jobs = [job for job in jobs if job.output and workflow.local_exec]
    left, unknown, seconds, by_threads, by_gpus = Counter(map(_kind, jobs)), dict[str, None](), [0.0], 0.0, 0.0
    for job in jobs:
        ended = times.get(kind := _kind(job), [])
        if len(ended) < min(2, left[kind]):
            unknown[job.rule.name] = None
            continue
        seconds.append(sum(ended) / len(ended))
        by_threads += seconds[-1] * job.threads
        by_gpus += seconds[-1] * job.resources.get("gpu", 0)
    return max(*seconds, by_threads / (workflow.resource_settings.cores or 1), by_gpus / max(gpus, 1)), list(unknown)


def seconds_of_earlier_jobs(folder: Path = Path(".snakemake/metadata")) -> Times:
    """The seconds of jobs by kind, from Snakemake's record of each output file."""
    found = Times(list)
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # a folder, or another release's record
            record = json.loads(path.read_text())
            seconds = max(record["endtime"] - record["starttime"], 0.0)
            found[record["rule"], _model_of(record["log"])].append(seconds)
    return found


def _kind(job: Any) -> tuple[str, str]:
    return job.rule.name, _model_of(job.log)


def _model_of(logs: Sequence[Any]) -> str:
    """The model of a job, whose log's path is logs/<model>/..."""
    return Path(logs[0]).parts[1] if logs else ""


def report_progress(logger: logging.Logger, workflow: Any, gpus: int) -> None:
    """Print progress lines if stderr is not a terminal; on a terminal Snakemake shows a progress bar."""
    if not sys.stderr.isatty():
        logger.addHandler(ProgressLines(workflow, gpus))


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
