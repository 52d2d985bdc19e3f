"""Several artifacts of one stage in one job on a GPU, with the model loaded once.

Loading a model onto a GPU takes as long as building a head, or counting a task's right answers.  So the job that has
made its own artifact goes on with those that others of this run are to make in the same stage and whose inputs are
there, and lays each beside the store, under its own name.  The job that is asked for it finds it there and moves it
into place, without a GPU.  So each artifact stays one job with one output and one recipe: none is made twice, and one
that cannot be made fails alone.

What others are to make stands in a file that the bridge writes before the first job (`GpuJobs.write_ahead`).  A kernel
lock per artifact keeps two jobs from making the same one.  On a cluster, which bundles such jobs, there is none.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from job import Job
from tallmasks.store import artifacts
from tallmasks.store.artifacts import Damaged

FOLDER = Path(".tallmasks") / "ahead"


def taken(output: Path) -> tuple[bool, int]:
    """Whether `output` was made ahead, and is in its place now; and a lock that keeps others from making it.

    Waits while another job is making it.
    """
    lock = _lock(output, fcntl.LOCK_EX)
    assert lock is not None
    os.set_inheritable(lock, True)
    made = FOLDER / output.name
    try:
        artifacts.check(made)
    except (FileNotFoundError, Damaged):
        return False, lock
    output.parent.mkdir(parents=True, exist_ok=True)
    made.replace(output)
    return True, lock


def each(job: Job, make: Callable[[Job], None]) -> None:
    """Make the artifact of a job, then those of others that can be made already."""
    make(job)
    import checked_inputs

    if job.ahead is None or not job.ahead.is_file():
        return
    for told in json.loads(job.ahead.read_text()):
        other = Job.parse(json.dumps(told))
        made = FOLDER / other.output.name
        if not all(path.exists() for paths in other.inputs.values() for path in paths):
            continue
        lock = _lock(other.output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            continue
        try:
            if not (made.exists() or other.output.exists()):
                print(f"ahead of its job: {other.output.name}", flush=True)
                made_from = checked_inputs.checked(other)
                beside = replace(other, outputs={"artifact": made}, made_from=made_from)
                make(replace(beside, gpus=job.gpus, threads=job.threads))
        except Exception as error:  # its own job will meet it again, and say so in its own log
            print(f"not made ahead: {other.output.name}: {error}", flush=True)
            return
        finally:
            os.close(lock)


def _lock(output: Path, how: int) -> int | None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = os.open(FOLDER / f"{output.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, how)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
