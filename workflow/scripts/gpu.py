"""A GPU, or an equal share of one, for every job that asks for it.

Snakemake's `resources: gpu=1` only counts: two jobs at once would both take device 0.  A device has four files, named
by its UUID, and a lease is the kernel's lock on a quarter, a half or all of them.  Locks are gone with the job's
process, kill -9 included, and hold for all Snakemakes of a user.  A job on a cluster uses the devices that the
scheduler assigned to it; where these are more than it asks for, the steps bundled in it lease them too.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

from tallmasks.artifacts.folders import try_lock
from tallmasks.errors import TallmasksError
from tallmasks.models import cuda

POLL_SECONDS = 0.2
QUARTERS = 4


def lease(count: int, submitted: bool = False, jobs_per_gpu: int = 1) -> list[int]:
    """Wait until there is room on `count` GPUs, take it for the life of this process, and set CUDA_VISIBLE_DEVICES.

    Args:
        submitted: whether a cluster's scheduler started this job and assigned its devices.
        jobs_per_gpu: 1, 2 or 4 jobs share each device, and each may use that share of its memory.

    Returns the locks' file descriptors.  Raises TallmasksError if the machine has fewer than `count`.
    """
    if not count:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return []
    if submitted and len(cuda.usable()) <= count:
        return []
    folder = Path(tempfile.gettempdir(), f"tallmasks-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    uuids, waits = cuda.enough(count), False
    while len(held := _held(folder, uuids, count, QUARTERS // jobs_per_gpu)) < count:
        for lock in chain.from_iterable(held.values()):
            os.close(lock)
        if not waits:
            print(f"waiting for {count} of {', '.join(uuids)}, which other jobs hold", file=sys.stderr, flush=True)
        waits = True
        time.sleep(random.uniform(0.5, 1.5) * POLL_SECONDS)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(held)
    os.environ[cuda.JOBS_PER_GPU] = str(jobs_per_gpu)
    share = "" if jobs_per_gpu == 1 else f", shared by up to {jobs_per_gpu} jobs"
    print(f"GPU {', '.join(held)}{share}", file=sys.stderr, flush=True)
    return [*chain.from_iterable(held.values())]


def _held(folder: Path, uuids: list[str], count: int, width: int) -> dict[str, list[int]]:
    """Locks on ``width`` quarters of at most ``count`` devices; of devices that no job uses first."""
    held: dict[str, list[int]] = {}
    for start in range(0, QUARTERS, width):
        for uuid in uuids:
            if uuid not in held and len(held) < count:
                locks = [_lock(folder / f"{uuid.replace('/', '_')}.{place}") for place in range(start, start + width)]
                taken = [lock for lock in locks if lock is not None]
                if len(taken) == width:
                    held[uuid] = taken
                else:
                    for lock in taken:
                        os.close(lock)
    return held


def _lock(file: Path) -> int | None:
    """The descriptor of a locked file; None where another process holds it."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    taken = try_lock(lock)
    if taken is None:
        raise TallmasksError(f"{file.parent}: its disk has no locks, which lease GPUs; set TMPDIR to another place")
    if taken:
        return lock
    os.close(lock)
    return None
