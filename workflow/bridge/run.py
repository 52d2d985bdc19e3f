"""The running Snakemake: its options, and checks of the machine before the first job."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError

from reproduction.artifacts.folders import SCRATCH, try_lock
from reproduction.models import cuda
from tallmasks.errors import TallmasksError, user_errors
from tallmasks.io.temporary_folders import TemporaryFolder

InputFunction = Callable[..., Any]
NO_PROFILE = (
    "profiles/default is not used, but the workflow needs its settings: run snakemake in the project's folder, without "
    "--workflow-profile and without --rerun-triggers"
)


def for_users(function: InputFunction) -> InputFunction:
    """Decorator: print an error that the user can fix as one line and exit; Snakemake would add a traceback."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            with user_errors():
                return function(*args, **kwargs)
        except (TallmasksError, WorkflowError) as error:
            sys.exit(f"error: {error}")

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

    @property
    def forces(self) -> bool:
        return bool(self.workflow.dag.forcefiles or self.workflow.dag.forcerules)

    def is_forced(self, file: str) -> bool:
        """True if the user forces the job that writes a file (-f, -F, -R)."""
        dag = self.workflow.dag
        return file in dag.forcefiles or any(rule.is_producer(file) for rule in dag.forcerules)


# -- before the first job -------------------------------------------------------------------------------------


def check_settings(workflow: Any) -> None:
    """Raises WorkflowError for rerun triggers other than the profile's, and if jobs would wait forever for a core."""
    settings = workflow.resource_settings
    if {str(trigger) for trigger in workflow.dag_settings.rerun_triggers} != {"mtime"}:
        raise WorkflowError(NO_PROFILE)
    if least := [count for count in (settings.cores, settings.nodes) if count is not None and count < 1]:
        raise WorkflowError(f"-j{least[0]} gives the jobs no core to run on; expected -j1 or more, or -n for a dry run")


def ensure_writable(folder: Path) -> None:
    """Create a folder if needed; raises WorkflowError if it cannot be written."""
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
    except OSError as error:
        raise WorkflowError(
            f"cannot write to the folder {folder} ({error.strerror}): free disk space, remove a file of that name, or "
            "correct the permissions"
        ) from None


def reset_future_times(files: Iterable[Path]) -> None:
    """Set modification times in the future to now; otherwise Snakemake fails jobs with outputs older than inputs."""
    now = time.time()
    for path in files:
        with contextlib.suppress(OSError):  # missing, or owned by another user
            if path.stat().st_mtime > now:
                os.utime(path)


def check_gpu_limit(workflow: Any, wanted: int) -> None:
    """Raises WorkflowError if a job needs GPUs under --resources gpu=0; Snakemake would silently give it none."""
    limit = workflow.global_resources.get("gpu")
    if wanted and limit is not None and limit.value == 0:
        raise WorkflowError(f"jobs need a GPU, but --resources gpu=0 allows none; {cuda.ON_A_CPU}")


def check_gpus(wanted: int) -> None:
    """Raises WorkflowError if a job cannot use so many GPUs, before anything is downloaded."""
    command = [sys.executable, "-m", cuda.__name__, str(wanted)]
    if wanted and (check := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        why = (check.stderr.strip().splitlines() or [f"exit status {check.returncode}"])[-1]
        raise WorkflowError(f"no job was started, because jobs need a GPU: {why}")


def be_the_only_writer(workflow: Any) -> None:
    """Lock the project until this process ends.  The lock is a kernel lock, so nothing remains after a kill.

    If another Snakemake holds the lock, wait and restart this process, because its plan may be outdated.
    """
    lock = os.open(SCRATCH / "writer.lock", os.O_RDWR | os.O_CREAT)
    if (locked := try_lock(lock)) is False:
        for number in (signal.SIGINT, signal.SIGTERM):  # Snakemake's handlers would wait for jobs
            signal.signal(number, signal.SIG_DFL)
        print("Another snakemake is running in this folder; waiting for it to end ...", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if locked is None:  # use Snakemake's own lock, which profiles/default disables
        print("This file system has no locks; using Snakemake's. After a kill: snakemake --unlock", file=sys.stderr)
        own = type(workflow.persistence)
        own.lock(workflow.persistence).__enter__()
        atexit.register(own.unlock, workflow.persistence)


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


def _slurm_request(job: Any) -> tuple[str, ...]:
    """The resources of a job as options of sbatch."""
    options = {
        "partition": job.resources.get("slurm_partition"),
        "account": job.resources.get("slurm_account"),
        "qos": job.resources.get("qos"),
        "constraint": job.resources.get("constraint"),
        "mem": job.resources.get("mem_mb"),
        "time": job.resources.get("runtime"),
        "gpus": job.resources.get("gpu"),
        "cpus-per-task": job.threads,
    }
    extra = shlex.split(str(job.resources.get("slurm_extra") or ""))
    return *(f"--{name}={value}" for name, value in options.items() if value), *extra


def check_slurm(workflow: Any, longest: int) -> None:
    """Raises WorkflowError if slurm is unavailable, would refuse a job or never start it, or cannot report its end."""
    sinfo = "timeout 60 sinfo --Node --noheader --format=%c"
    nodes = subprocess.run(sinfo, shell=True, capture_output=True, text=True, check=False)
    if nodes.returncode:
        why = " ".join(nodes.stderr.split()) or "nothing from sinfo for a minute"
        raise WorkflowError(f"slurm is not available: {why}. Run where it is, or without --profile profiles/slurm")
    cores, cpus = workflow.resource_settings.cores or 1, max(map(int, nodes.stdout.split()), default=0)
    if cores > cpus:
        raise WorkflowError(f"a job may use {cores} cores, but slurm's largest node has {cpus}: add --cores {cpus}")
    jobs = {workflow.dag.get_job_group(job) or job for job in workflow.dag.needrun_jobs()}
    minutes, name = max((job.resources.get("runtime", 0), job.name) for job in jobs)
    if minutes > longest:
        raise WorkflowError(
            f"a job of {name} would request {minutes} minutes, more than longest_job in params.yaml ({longest}): "
            "increase it, give more --cores, or decrease the runtime of a step there or group-components in the profile"
        )
    for request in sorted({_slurm_request(job) for job in jobs}):
        command = ["sbatch", "--test-only", *request]
        test = subprocess.run(command, input="#!/bin/sh\n", capture_output=True, text=True, timeout=60, check=False)
        if test.returncode:
            options, why = " ".join(request), " ".join(test.stderr.split())
            raise WorkflowError(f"slurm would refuse a job with {options}: {why}. Change params.yaml or the profile")
    needs_sacct = workflow.executor_settings.status_command != "squeue"
    if needs_sacct and subprocess.call("timeout 60 sacct --noheader --jobs=1 > /dev/null 2>&1", shell=True):
        raise WorkflowError("sacct does not answer, as without slurmdbd: add --slurm-status-command squeue")
