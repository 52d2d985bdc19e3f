"""Every job that asks for a GPU has one to itself, and gives it back when it dies."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpus import LISTED, fake_nvml
from project import ROOT

SCRIPTS = ROOT / "workflow" / "scripts"
LEASE = """
import gpu, os, sys, time
gpu.lease(*map(int, sys.argv[1:]))
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
time.sleep(600)
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of jobs on a machine with four fake devices, and with leases of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    paths = os.pathsep.join([str(fake_nvml(tmp_path / "tools")), str(SCRIPTS)])
    return kept | {"TALLMASKS_WARM": "0", "TMPDIR": str(tmp_path), "PYTHONPATH": paths}


@pytest.fixture
def lease(machine: dict[str, str]) -> Iterator[Start]:
    """Starts a job with arguments of `gpu.lease`, which says its devices and keeps them until it is killed."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: int, **variables: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", LEASE, *map(str, arguments)]
            process = subprocess.Popen(command, env=machine | variables, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def said(process: subprocess.Popen[str]) -> set[str]:
    assert process.stdout
    return set(process.stdout.readline().strip().split(","))


@pytest.mark.parametrize("allocation", [{}, {"SLURM_JOB_ID": "7"}], ids=["a machine", "salloc"])
def test_jobs_at_once_have_different_devices(lease: Start, allocation: dict[str, str]) -> None:
    """Two fine-tunings would share device 0 and its memory, with three devices idle."""
    jobs = [lease(count, **allocation) for count in (1, 2, 1)]
    devices = [said(process) for process in jobs]
    assert [len(names) for names in devices] == [1, 2, 1]
    assert set.union(*devices) == set(LISTED.values())
    waiting = lease(1, **allocation)
    time.sleep(0.5)
    assert waiting.poll() is None
    jobs[0].kill()  # a killed job gives its device back
    assert said(waiting) == devices[0]


def test_jobs_that_share_a_gpu_fill_idle_ones_first(machine: dict[str, str], lease: Start) -> None:
    """Four jobs would crowd on two of four cards; or a job that needs a whole card would find another one there."""
    machine["CUDA_VISIBLE_DEVICES"] = "0,1"
    halves = [lease(1, 0, 2) for _ in range(2)]
    assert set.union(*map(said, halves)) == {LISTED["0"], LISTED["1"]}
    more = [lease(1, 0, 2) for _ in range(2)]
    assert set.union(*map(said, more)) == {LISTED["0"], LISTED["1"]}
    waiting = [lease(1, 0, 2), lease(1)]
    time.sleep(0.5)
    assert [process.poll() for process in waiting] == [None, None]
    halves[0].kill()
    freed = said(waiting[0])  # the one that needs half a card
    for process in (*halves, *more):
        process.kill()
    assert said(waiting[1]) == {LISTED["0"], LISTED["1"]} - freed


@pytest.mark.parametrize(("assigned", "taken"), [("2", {"2"}), ("2,3", {LISTED["2"], LISTED["3"]})])
def test_of_a_submitted_job_the_scheduler_decides(lease: Start, assigned: str, taken: set[str]) -> None:
    """A job would use a device that slurm gave to another job, or two steps would share the first device."""
    assert said(lease(1, 1, CUDA_VISIBLE_DEVICES=assigned)) <= taken
