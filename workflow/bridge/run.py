"""One run of Snakemake: what it asks of the machine before the first job, and what its user forces."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError

from tallmasks.artifacts.folders import SCRATCH, try_lock
from tallmasks.errors import TallmasksError, user_errors
from tallmasks.models import cuda

InputFunction = Callable[..., Any]
NO_PROFILE = (
    "profiles/default is not in force, and the workflow is only right under it: run snakemake in the project's folder, "
    "without --workflow-profile and without other --rerun-triggers"
)


def for_users(function: InputFunction) -> InputFunction:
    """An error that a user can put right ends this process with one line: Snakemake would add its own places to it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            with user_errors():
                return function(*args, **kwargs)
        except (TallmasksError, WorkflowError) as error:
            sys.exit(f"error: {error}")

    return wrapper


class Run:
    """What rules ask about the Snakemake that reads them, by its workflow object.  Nothing here changes it."""

    def __init__(self, workflow: Any) -> None:
        self.workflow = workflow

    @property
    def submitted(self) -> bool:
        """Whether this process is itself a job on a cluster, started by the Snakemake that the user called."""
        return not self.workflow.is_main_process

    @property
    def writing(self) -> bool:
        """Whether this is a process that has jobs make files."""
        return bool(self.submitted or (self.workflow.executor_plugin and not self.workflow.dryrun))

    @property
    def inspects_dag(self) -> bool:
        """Whether the whole DAG is only shown (--report, --dag); a dry run is something else."""
        return not self.submitted and not self.workflow.executor_plugin

    @property
    def forces(self) -> bool:
        """Whether the user forces any job (-f, -F, -R)."""
        return bool(self.workflow.dag.forcefiles or self.workflow.dag.forcerules)

    def is_forced(self, file: str) -> bool:
        """Whether the user forces the job that writes a file."""
        dag = self.workflow.dag
        return file in dag.forcefiles or any(rule.is_producer(file) for rule in dag.forcerules)


# -- before the first job -------------------------------------------------------------------------------------


def check_settings(workflow: Any) -> None:
    """Refuse what makes this workflow wrong, or could only wait for ever: other rerun triggers than the profile's, no
    core to run a job on."""
    settings = workflow.resource_settings
    if {str(trigger) for trigger in workflow.dag_settings.rerun_triggers} != {"mtime"}:
        raise WorkflowError(NO_PROFILE)
    if 0 in (settings.cores, settings.nodes):
        raise WorkflowError("-j0 gives the jobs no core to run on; expected -j1 or more, or -n for a dry run")


def check_room(folder: Path) -> None:
    """Make a folder if it is not there, and stop where it cannot be written."""
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
    except OSError as error:
        raise WorkflowError(
            f"{folder} cannot be written ({error.strerror}); make room, move away a file of its name, or give this user"
            " the right to it"
        ) from None


def date_now(files: Iterable[Path]) -> None:
    """Set the modification time of files dated in the future to now.

    Otherwise Snakemake fails a job, because its outputs are older than an input.
    """
    now = time.time()
    for path in files:
        with contextlib.suppress(OSError):  # it is not there yet, or another user's
            if path.stat().st_mtime > now:
                os.utime(path)


def check_gpu_limit(workflow: Any, wanted: int) -> None:
    """Stop where a job wants GPUs and --resources gpu=0 leaves none: Snakemake would make that the job's own number."""
    limit = workflow.global_resources.get("gpu")
    if wanted and limit is not None and limit.value == 0:
        raise WorkflowError(f"jobs are to compute on a GPU, and --resources gpu=0 leaves none; {cuda.ON_A_CPU}")


def check_gpus(wanted: int) -> None:
    """Stop where a job that wants so many GPUs cannot compute on them, before anything is downloaded."""
    command = [sys.executable, "-m", cuda.__name__, str(wanted)]
    if wanted and (asked := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        why = (asked.stderr.strip().splitlines() or [f"exit status {asked.returncode}"])[-1]
        raise WorkflowError(f"nothing was started, since jobs are to compute on a GPU: {why}")


def be_the_only_writer(workflow: Any) -> None:
    """Take the kernel's lock on this project, for the life of this process: a killed one leaves nothing to unlock.

    Where another Snakemake holds it, this one waits, and begins anew: what it planned may be made by then.
    """
    lock = os.open(SCRATCH / "writer.lock", os.O_RDWR | os.O_CREAT)
    if (taken := try_lock(lock)) is False:
        for number in (signal.SIGINT, signal.SIGTERM):  # Snakemake's handlers would wait for jobs
            signal.signal(number, signal.SIG_DFL)
        print("Another snakemake is at work in this folder; waiting for it to end ...", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if taken is None:  # Snakemake's own, which profiles/default switches off
        print("This disk has no locks, so Snakemake's own is used; after a kill: snakemake --unlock", file=sys.stderr)
        own = type(workflow.persistence)
        own.lock(workflow.persistence).__enter__()
        atexit.register(own.unlock, workflow.persistence)


def start_warm_python() -> None:
    """Start the server whose forks the jobs are; it ends with this process.  TALLMASKS_WARM may name another's."""
    if "TALLMASKS_WARM" in os.environ:
        return
    folder = os.environ["TALLMASKS_WARM"] = tempfile.mkdtemp(prefix="tallmasks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, "workflow/runner/warm.py", "--serve"]  # in its own session: Ctrl-C is for Snakemake
    server = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert server.stdout
    server.stdout.readline()  # it can be connected to, or has ended


def _slurm_request(job: Any) -> tuple[str, ...]:
    """What a submission asks of slurm, as options of sbatch."""
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
    """Stop where jobs would wait for ever: no slurm, too many cores or minutes, nothing that knows when a job ends.
    Or where slurm refuses a job, since Snakemake does not show why."""
    command = "timeout 60 sinfo --Node --noheader --format=%c"
    nodes = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    if nodes.returncode:
        why = " ".join(nodes.stderr.split()) or "nothing from sinfo for a minute"
        raise WorkflowError(f"slurm does not answer: {why}; run where it is, or without --profile profiles/slurm")
    cores, cpus = workflow.resource_settings.cores or 1, max(map(int, nodes.stdout.split()), default=0)
    if cores > cpus:
        raise WorkflowError(f"a job may take {cores} cores, and slurm's largest node has {cpus}: give --cores {cpus}")
    jobs = {workflow.dag.get_job_group(job) or job for job in workflow.dag.needrun_jobs()}
    minutes, name = max((job.resources.get("runtime", 0), job.name) for job in jobs)
    if minutes > longest:
        raise WorkflowError(
            f"a job of {name} would ask for {minutes} minutes, and longest_job in params.yaml is {longest}: raise it, "
            "or lower the runtime of a step there, or group-components in the profile"
        )
    for request in sorted({_slurm_request(job) for job in jobs}):
        test = subprocess.run(
            ["sbatch", "--test-only", *request],
            input="#!/bin/sh\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if test.returncode:
            asked, why = " ".join(request), " ".join(test.stderr.split())
            raise WorkflowError(f"slurm would refuse a job with {asked}: {why}. Change params.yaml or the profile")
    asked = workflow.executor_settings.status_command != "squeue"
    if asked and subprocess.call("timeout 60 sacct --noheader --jobs=1 > /dev/null 2>&1", shell=True):
        raise WorkflowError("sacct does not answer, as without slurmdbd: add --slurm-status-command squeue")
