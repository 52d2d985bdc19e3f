"""A GPU of its own for every job that asks for one.

Snakemake's `resources: gpu=1` only counts: two jobs at once would both take device 0.  A lease is a kernel lock on a
file per device, by its UUID; it is gone with the job's process, kill -9 included.  So two Snakemakes of one user share
a machine's GPUs.  A job on a cluster uses the devices that the scheduler assigned to it; where these are more than it
asks for, the steps bundled in it lease them too.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tallmasks.models import cuda
from tallmasks.store.errors import TallmasksError
from tallmasks.store.folders import try_lock

POLL_SECONDS = 0.2


def lease(count: int, submitted: bool = False) -> list[int]:
    """Wait until `count` GPUs are free, take them for the life of this process, and set CUDA_VISIBLE_DEVICES.

    ``submitted``: whether a cluster's scheduler started this job and assigned its devices.

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
    while len(held := _held(folder, uuids)) < count:
        for lock in held.values():
            os.close(lock)
        if not waits:
            print(f"waiting for {count} of {', '.join(uuids)}, which other jobs hold", file=sys.stderr, flush=True)
        waits = True
        time.sleep(random.uniform(0.5, 1.5) * POLL_SECONDS)
    for uuid in list(held)[count:]:
        os.close(held.pop(uuid))
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(held)
    print(f"GPU {', '.join(held)}", file=sys.stderr, flush=True)
    return list(held.values())


def _held(folder: Path, uuids: list[str]) -> dict[str, int]:
    """The locks of those devices that no other process has."""
    held = {}
    for uuid in uuids:
        lock = os.open(folder / uuid.replace("/", "_"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        taken = try_lock(lock)
        if taken is None:
            raise TallmasksError(f"{folder}: its disk knows no locks, which lease GPUs; set TMPDIR to another place")
        if taken:
            held[uuid] = lock
        else:
            os.close(lock)
    return held
