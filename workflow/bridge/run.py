"""The running Snakemake: its options, and checks of the machine before the first job."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from snakemake.exceptions import WorkflowError

from reproduction.models import cuda
from reproduction.plan.params import FILE
from tallmasks.errors import TallmasksError, user_errors
from tallmasks.io.temporary_folders import TemporaryFolder

InputFunction = Callable[..., Any]
NO_PROFILE = (
    "profiles/default is not used, but the workflow needs its settings: run snakemake in the project's folder, without "
    "--workflow-profile and without --rerun-triggers"
)


overriding: list[str] = []
"""What overrides params.yaml in this run: files of `--configfile`, and "--config"."""


def for_users(function: InputFunction) -> InputFunction:
    """Decorator: print an error that the user can fix as one line and exit; Snakemake would add a traceback."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            with user_errors():
                return function(*args, **kwargs)
        except (TallmasksError, WorkflowError) as error:
            others = f" ({FILE} is overridden by {', '.join(overriding)})"
            sys.exit(f"error: {error}{others if overriding and str(FILE) in str(error) else ''}")

    return wrapper


class Run:
    """Read access to Snakemake's workflow object."""

    def __init__(self, workflow: Any) -> None:
        self.workflow = workflow

    @property
    def submitted(self) -> bool:
        """True if this process is a job on a cluster."""
        return not self.workflow.is_main_process

    @property
    def writing(self) -> bool:
        """True if this process runs jobs, as opposed to a dry run or a report."""
        return bool(self.submitted or (self.workflow.executor_plugin and not self.workflow.dryrun))

    @property
    def inspects_dag(self) -> bool:
        """True if Snakemake only shows the DAG (--report, --dag); False for a dry run."""
        return not self.submitted and not self.workflow.executor_plugin


# -- before the first job -------------------------------------------------------------------------------------


def check_settings(workflow: Any) -> None:
    """Raises WorkflowError for rerun triggers other than the profile's."""
    if {str(trigger) for trigger in workflow.dag_settings.rerun_triggers} != {"mtime"}:
        raise WorkflowError(NO_PROFILE)


def check_gpus(wanted: int) -> None:
    """Raises WorkflowError if a job cannot use so many GPUs, before anything is downloaded."""
    command = [sys.executable, "-m", cuda.__name__, str(wanted)]
    if wanted and (check := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        why = (check.stderr.strip().splitlines() or [f"exit status {check.returncode}"])[-1]
        raise WorkflowError(f"no job was started, because jobs need a GPU: {why}")


def start_warm_python() -> None:
    """Start the server that forks jobs (workflow/runner/warm.py), unless TALLMASKS_WARM is set.

    The server ends with this process.
    """
    if "TALLMASKS_WARM" in os.environ:
        return
    folder = TemporaryFolder()
    atexit.register(folder.__exit__)  # keeps it until then
    os.environ["TALLMASKS_WARM"] = str(folder.path)
    command = [sys.executable, "workflow/runner/warm.py", "--serve"]  # its own session: Ctrl-C goes to Snakemake only
    server = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert server.stdout
    server.stdout.readline()  # until it accepts connections, or has ended


def check_slurm(workflow: Any) -> None:
    """Raises WorkflowError if slurm is unavailable, or cannot report the end of a job."""
    answer = subprocess.run("timeout 60 sinfo", shell=True, capture_output=True, text=True, check=False)
    if answer.returncode:
        why = " ".join(answer.stderr.split()) or "nothing from sinfo for a minute"
        raise WorkflowError(f"slurm is not available: {why}. Run where it is, or without --profile profiles/slurm")
    needs_sacct = workflow.executor_settings.status_command != "squeue"
    if needs_sacct and subprocess.call("timeout 60 sacct --noheader --jobs=1 > /dev/null 2>&1", shell=True):
        raise WorkflowError("sacct does not answer, as without slurmdbd: add --slurm-status-command squeue")
