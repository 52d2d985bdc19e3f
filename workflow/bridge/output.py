"""Messages of a run in addition to Snakemake's own: progress and results."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

SHOWN = 10  # results to list at the end


class ProgressLines(logging.Handler):
    """Prints one line per finished job, with the number of finished jobs."""

    def __init__(self, workflow: Any) -> None:
        super().__init__()
        self._jobs = {job.jobid: job for job in workflow.dag.needrun_jobs()}
        self._finished = ""

    def emit(self, record: Any) -> None:
        match getattr(record, "event", None):
            case "job_finished":
                job = self._jobs[record.job_id]
                self._finished = " ".join([job.rule.name, *map(str, job.wildcards_dict.values())])
            case "progress":
                print(f"{record.done} of {record.total} jobs: {self._finished}", file=sys.stderr)


def report_progress(logger: logging.Logger, workflow: Any) -> None:
    """Print progress lines if stderr is not a terminal; on a terminal Snakemake shows a progress bar."""
    if not sys.stderr.isatty():
        logger.addHandler(ProgressLines(workflow))


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
