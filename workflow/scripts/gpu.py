"""Assigns GPUs, or equal shares of one, to jobs.

Snakemake only counts GPUs, so two concurrent jobs would both use device 0.  Each device has four lock files, and a job
locks one, two or four of them: on an H200, two fine-tunings of ViT-B/32 train 1.8 times as many images as one.  Kernel
locks end with the process, even after kill -9, and work across all Snakemakes of a user.  A job on a cluster uses the
devices from the scheduler; bundled steps lease them if there are several.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from itertools import chain, product
from pathlib import Path

from reproduction.artifacts.folders import try_lock
from reproduction.models import cuda

POLL_SECONDS = 0.2
QUARTERS = 4


def lease(count: int, submitted: bool = False, jobs_per_gpu: int = 1) -> list[int]:
    """Wait for `count` GPUs, lock them until this process ends, and set CUDA_VISIBLE_DEVICES.

    Args:
        submitted: True if a cluster's scheduler assigned the devices.
        jobs_per_gpu: 1, 2 or 4; each job may use that share of the memory.

    Returns the file descriptors of the locks.  Raises TallmasksError if the machine has fewer than `count` GPUs.
    """
    if not count:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return []
    if submitted and len(cuda.usable()) <= count:
        return []
    folder = Path(tempfile.gettempdir(), f"tallmasks-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    uuids, is_waiting = cuda.enough(count), False
    while len(held := _held(folder, uuids, count, QUARTERS // jobs_per_gpu)) < count:
        for lock in chain.from_iterable(held.values()):
            os.close(lock)
        if not is_waiting:
            print(f"waiting for {count} of {', '.join(uuids)}, which other jobs use", file=sys.stderr, flush=True)
        is_waiting = True
        time.sleep(random.uniform(0.5, 1.5) * POLL_SECONDS)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(held)
    os.environ[cuda.JOBS_PER_GPU] = str(jobs_per_gpu)
    share = "" if jobs_per_gpu == 1 else f", shared by up to {jobs_per_gpu} jobs"
    print(f"GPU {', '.join(held)}{share}", file=sys.stderr, flush=True)
    return [*chain.from_iterable(held.values())]


def _held(folder: Path, uuids: list[str], count: int, width: int) -> dict[str, list[int]]:
    """Lock `width` of the four files of up to `count` devices, unused devices first; descriptors by device."""
    held: dict[str, list[int]] = {}
    for start, uuid in product(range(0, QUARTERS, width), uuids):
        if uuid not in held and len(held) < count:
            files = [folder / f"{uuid.replace('/', '_')}.{number}" for number in range(start, start + width)]
            if locks := _locked(files):
                held[uuid] = locks
    return held


def _locked(files: list[Path]) -> list[int]:
    """The descriptors of all files, locked; none if another process holds the lock of one."""
    locks = []
    for file in files:
        locks.append(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if not try_lock(locks[-1]):
            for lock in locks:
                os.close(lock)
            return []
    return locks
