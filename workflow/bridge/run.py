"""One run of Snakemake: what it may write, what its user forces, and what it leaves alone."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from snakemake import __version__
from snakemake.exceptions import WorkflowError
from snakemake.jobs import Job

from tallmasks.store.artifacts import digest_of
from tallmasks.store.errors import TallmasksError, in_words
from tallmasks.store.folders import RESULTS, SCRATCH

InputFunction = Callable[..., Any]
EXPECTED = "Snakemake 9.27"
"""The version whose parts are replaced below."""


def for_users(function: InputFunction) -> InputFunction:
    """An error that a user can put right ends this process with one line: Snakemake would add its own places to it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            with in_words():
                return function(*args, **kwargs)
        except (TallmasksError, WorkflowError) as error:
            sys.exit(f"error: {error}")

    return wrapper


def replace(owner: Any, **parts: Any) -> None:
    """Put something else in the place of parts of Snakemake.

    Raises WorkflowError where this Snakemake has no part of a name, so that it does under another one what it must not
    do.
    """
    for name, value in parts.items():
        if not hasattr(owner, name):
            whose = getattr(owner, "__name__", type(owner).__name__)
            raise WorkflowError(
                f"Snakemake {__version__} has no {whose}.{name}, which this workflow replaces; expected {EXPECTED}: "
                "`make install` installs it into .venv/"
            )
        setattr(owner, name, value)


NO_PROFILE = (
    "error: profiles/default is not in force, and the workflow is only right under it: run snakemake in the project's "
    "folder, without --workflow-profile and without other --rerun-triggers"
)


def check_project(workflow: Any) -> None:
    """Refuse a project without its profile, or where Snakemake cannot write its own files.

    While the Snakefile is read: later, Snakemake has printed a header, or ends in a traceback.

    Raises OSError where the project cannot be written.
    """
    if workflow.is_main_process and not workflow.output_settings.show_failed_logs:  # the profile has it
        sys.exit(NO_PROFILE)
    folder = Path.cwd() / ".snakemake"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


class Run:
    """What rules ask about the Snakemake that reads them, by its workflow object."""

    def __init__(self, workflow: Any) -> None:
        self.workflow = workflow
        self._lock: IO[str] | None = None

    def ask_before_deleting(self) -> None:
        """`--delete-all-output` takes the checkpoints along, which cost the most: as `make clean`, only with YES=1."""
        delete = self.workflow.delete_output

        def with_consent(only_temp: bool = False, dryrun: bool = False) -> None:
            if not (only_temp or dryrun or os.environ.get("YES") == "1"):
                raise WorkflowError(
                    "--delete-all-output deletes fine-tuned checkpoints too, and nothing was deleted. With YES=1 "
                    "before the command it does; with -n it lists them; `rm -r results` deletes the tables and figures"
                )
            delete(only_temp=only_temp, dryrun=dryrun)

        replace(self.workflow, delete_output=with_consent)

    def end_quietly_on(self, number: signal.Signals) -> None:
        """One line instead of the tracebacks of whatever was at work, and no waiting for the jobs that run.

        On this machine this process just dies and its jobs with it, which leaves nothing half-written; jobs that were
        submitted to a cluster are cancelled by Snakemake.
        """
        if not self.workflow.is_main_process or signal.getsignal(number) is signal.SIG_IGN:
            return  # a job, or in the background of a shell script

        def end(number: int, frame: Any) -> None:
            signal.signal(number, signal.SIG_DFL)
            message = "Interrupted. What is done is kept: the same command goes on with what is missing."
            cursor = "\033[?25h" if sys.stderr.isatty() else ""  # which the view of the run hides
            os.write(sys.stderr.fileno(), f"{cursor}\n{message}\n".encode())
            if not self.workflow.local_exec and self.workflow.scheduler:
                raise KeyboardInterrupt
            os.kill(os.getpid(), number)

        signal.signal(number, end)

    @functools.cached_property
    def pruned(self) -> bool:
        """Whether an artifact that exists is a leaf of the DAG, unless it is made anew.

        Asked first when the DAG is built: only then are the settings and the executor known.
        """
        if self.looking:
            return False
        settings, execution = self.workflow.dag_settings, self.workflow.execution_settings
        triggers = {str(trigger) for trigger in settings.rerun_triggers}
        if self.workflow.is_main_process and (triggers != {"mtime"} or not execution.ignore_incomplete):
            sys.exit(NO_PROFILE)
        self._check_machine()
        self._leave_files_alone()
        if self.workflow.local_exec:  # with a limit of jobs per second each job's end wakes the scheduler ever after
            replace(self.workflow.scheduling_settings, max_jobs_per_timespan=None)
        if self.writing:
            self.check_room()
            self._become_the_writer()
        return True

    @property
    def writing(self) -> bool:
        """Whether this is the process that has jobs make files."""
        return self.workflow.is_main_process and self.workflow.executor_plugin and not self.workflow.dryrun

    @property
    def looking(self) -> bool:
        """Whether the DAG is only looked at as a whole (--report, --dag); a dry run is something else."""
        return self.workflow.is_main_process and not self.workflow.executor_plugin

    def _leave_files_alone(self) -> None:
        """Switch off what Snakemake does to files around a job, and must not where they appear by rename: removing an
        output before its job, or because an input is dated in the future, and refusing to replace a read-only one.  It
        would also copy the old results back over themselves after a failed job (`update` in the rules keeps them)."""

        async def nothing(*_: Any) -> None:
            pass

        replace(self.workflow.dag, check_output_mtime=nothing)
        replace(Job, check_protected_output=nothing, remove_existing_output=nothing)
        unsaved = {"backup_output": lambda path: None, "cleanup_backup": lambda path: None}
        replace(self.workflow.persistence, restore_output=Path.exists, **unsaved)

    def _check_machine(self) -> None:
        """Refuse what could only wait for ever: no core to run a job on, or a cluster that is not there."""
        settings, executor = self.workflow.resource_settings, self.workflow.executor_plugin
        if self.workflow.dryrun or not self.workflow.is_main_process:
            return
        if 0 in (settings.cores, settings.nodes):
            raise WorkflowError("-j0 gives the jobs no core to run on; expected -j1 or more, or -n for a dry run")
        if executor and executor.name == "slurm" and (problem := no_slurm()):
            raise WorkflowError(f"{problem}; run this where slurm is, or without --profile profiles/slurm")

    def check_room(self) -> None:
        """Stop before the first job where results cannot be written, or where Snakemake has no room for its own."""
        temporary = os.environ.get("TMPDIR") or tempfile.gettempdir()  # which passes over a full TMPDIR, unlike PuLP
        for folder in (RESULTS, Path(temporary)):
            try:
                if folder == RESULTS:
                    folder.mkdir(exist_ok=True)
                with tempfile.TemporaryFile(dir=folder) as file:
                    file.write(bytes(1 << 20))
            except OSError as error:
                raise WorkflowError(
                    f"{folder} cannot be written ({error.strerror}); make room or give this user the right to it"
                    f"{', or set TMPDIR to another folder' if folder != RESULTS else ''}"
                ) from None

    def _become_the_writer(self) -> None:
        """Hold a kernel lock for the life of this process: a second Snakemake waits, and a killed one leaves nothing to
        unlock.  Snakemake's own lock is a plain file, which would stay."""
        SCRATCH.mkdir(exist_ok=True)
        self._lock = (SCRATCH / "writer.lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another snakemake is at work in this folder; waiting for it to end ...", file=sys.stderr)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    @property
    def forcing(self) -> bool:
        return bool(self.workflow.dag.forcefiles or self.workflow.dag.forcerules)

    def is_forced(self, path: Path, prefix: str | None = None) -> bool:
        """Whether the user forces the job that writes `path`, and what lies beside it and begins with `prefix`."""
        dag, begins = self.workflow.dag, path.name if prefix is None else prefix
        files = map(Path, dag.forcefiles)
        return any(rule.is_producer(str(path)) for rule in dag.forcerules) or any(
            file.parent == path.parent and file.name.startswith(begins) for file in files
        )

    @property
    def runs_jobs(self) -> bool:
        """Whether this process runs jobs on this machine.  On a cluster others do."""
        return self._lock is not None and self.workflow.executor_plugin.name == "local"

    @property
    def leases(self) -> bool:
        """Whether this process runs jobs on this machine, each with a lease of its GPUs; on a cluster the scheduler
        assigns them."""
        flow = self.workflow
        return bool(flow.is_main_process and not self.looking and flow.local_exec and not flow.dryrun)

    @property
    def submitted(self) -> bool:
        """Whether this process is itself a job on a cluster, started by the Snakemake that the user called."""
        return not self.workflow.is_main_process


def stale_marker(what: Path, digest: str, files: list[Path]) -> list[str]:
    """A file that is newer than `files`, which are stale, with content of its own: Snakemake passes over a newer
    input whose checksum it has seen.

    In a folder of its own: Snakemake lists the folder of an input once, and takes a file that appears there later for
    missing.  Where the job's outputs are there from before, it then leaves out the job without a word.
    """
    if not files:
        return []
    marker = SCRATCH / "stale" / digest_of([str(what), digest]) / "marker"
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(f"{what} {time.time_ns()}\n")
    newest = max(path.lstat().st_mtime for path in files) + 1
    os.utime(marker, (newest, newest))
    return [str(marker)]


def no_slurm() -> str:
    """Why no job can be submitted to slurm; nothing where it can."""
    for program in ("sbatch", "sinfo"):
        if not shutil.which(program):
            return f"there is no {program} on this machine's PATH"
    try:
        asked = subprocess.run(["sinfo", "--noheader"], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "slurm's controller has not answered sinfo for a minute"
    return f"slurm does not answer: {' '.join(asked.stderr.split())}" if asked.returncode else ""
