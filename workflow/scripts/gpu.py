"""A GPU of its own for every job that asks for one.

Snakemake's `resources: gpu=1` only counts: two jobs at once would both take device 0.  A lease is a kernel lock on a
file per device, held by the job's process and gone with it, kill -9 included, so that two Snakemakes of one user
share a machine's GPUs without knowing of each other.  On a cluster the scheduler assigns devices: nothing is done here.

The devices are those of TALLMASKS_GPUS (`0,1,2`), else of CUDA_VISIBLE_DEVICES, else all of the machine.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys
import tempfile
import time
from pathlib import Path

POLL_SECONDS = 0.2
SCHEDULERS = ("SLURM_JOB_ID",)


def devices() -> list[str]:
    """The names of the GPUs that jobs may use, as CUDA_VISIBLE_DEVICES takes them."""
    for variable in ("TALLMASKS_GPUS", "CUDA_VISIBLE_DEVICES"):
        if variable in os.environ:
            return [name.strip() for name in os.environ[variable].split(",") if name.strip()]
    found = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    return sorted(found, key=int)


def lease(count: int) -> None:
    """Wait until `count` GPUs are free, take them for the life of this process, and set CUDA_VISIBLE_DEVICES.

    The lock passes on to the program that this process becomes, and to what that forks.

    Ends the job with an error where the machine has fewer than `count`.
    """
    if any(variable in os.environ for variable in SCHEDULERS):
        return
    known = devices()
    if count > len(known):
        sys.exit(
            f"error: {count} GPUs wanted for one job, {len(known)} found ({', '.join(known) or 'none'}); set gpu in "
            "params.yaml under models.<model>.resources, or name the devices in TALLMASKS_GPUS"
        )
    folder = Path(tempfile.gettempdir(), f"tallmasks-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        held = {name: lock for name in known if (lock := _try_lock(folder / name.replace("/", "_"))) is not None}
        if len(held) >= count:
            break
        for lock in held.values():
            os.close(lock)
        time.sleep(random.uniform(0.5, 1.5) * POLL_SECONDS)
    for name in list(held)[count:]:
        os.close(held.pop(name))
    for lock in held.values():
        os.set_inheritable(lock, True)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(held)
    print(f"GPU {', '.join(held)}", file=sys.stderr, flush=True)


def _try_lock(path: Path) -> int | None:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
