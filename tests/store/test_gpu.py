"""Every job that asks for a GPU has one to itself, and gives it back when it dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store.project import ROOT

SCRIPTS = ROOT / "workflow" / "scripts"
LEASE = "import gpu, os, sys; gpu.lease(int(sys.argv[1])); print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); "


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of jobs on a machine with four fake devices, and with leases of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"}}
    return kept | {"TALLMASKS_GPUS": "0,1,2,3", "TMPDIR": str(tmp_path), "PYTHONPATH": str(SCRIPTS)}


def job(machine: dict[str, str], count: int, work: str) -> subprocess.Popen[str]:
    """A job that leases `count` devices, says which, and then becomes the program `work`, as jobs do."""
    command = [sys.executable, "-c", f"{LEASE} os.execvp('sh', ['sh', '-c', {work!r}])", str(count)]
    return subprocess.Popen(command, env=machine, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def said(process: subprocess.Popen[str]) -> set[str]:
    assert process.stdout
    return set(process.stdout.readline().strip().split(","))


def test_jobs_at_once_have_different_devices(machine: dict[str, str]) -> None:
    """Two fine-tunings would share device 0 and its memory, with three devices idle."""
    jobs = [job(machine, count, "exec sleep 600") for count in (1, 2, 1)]
    devices = [said(process) for process in jobs]
    assert [len(names) for names in devices] == [1, 2, 1]
    assert set.union(*devices) == {"0", "1", "2", "3"}
    waiting = job(machine, 1, "true")
    time.sleep(0.5)
    assert waiting.poll() is None
    os.kill(jobs[0].pid, signal.SIGKILL)  # a killed job gives its device back
    assert said(waiting) == devices[0]
    for process in (*jobs, waiting):
        process.kill()
        process.wait()


def test_many_jobs_never_overlap(machine: dict[str, str], tmp_path: Path) -> None:
    """Jobs of two Snakemakes would meet on one device now and then."""
    work = f"mkdir {tmp_path}/busy-$CUDA_VISIBLE_DEVICES && sleep 0.05 && rmdir {tmp_path}/busy-$CUDA_VISIBLE_DEVICES"
    jobs = [job(machine, 1, work) for _ in range(16)]
    assert {process.wait() for process in jobs} == {0}


def test_more_devices_than_there_are_is_an_error(machine: dict[str, str]) -> None:
    """A job would wait for ever."""
    done = subprocess.run([sys.executable, "-c", LEASE, "5"], env=machine, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "5 GPUs wanted for one job, 4 found" in done.stderr


def test_under_slurm_the_scheduler_decides(machine: dict[str, str]) -> None:
    """A job would move from the device that slurm gave it to one that slurm gave to another."""
    given = machine | {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", LEASE, "1"], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


@pytest.mark.parametrize(
    ("variables", "expected"), [({"CUDA_VISIBLE_DEVICES": "1,3"}, "1"), ({"TALLMASKS_GPUS": "GPU-8f"}, "GPU-8f")]
)
def test_devices_can_be_named(machine: dict[str, str], variables: dict[str, str], expected: str) -> None:
    """A user who keeps device 0 for a screen would find jobs on it."""
    del machine["TALLMASKS_GPUS"]
    given = machine | variables
    done = subprocess.run([sys.executable, "-c", LEASE, "1"], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_a_job_of_the_workflow_takes_the_lease(machine: dict[str, str], tmp_path: Path) -> None:
    """The lease would exist, and the jobs not ask for it."""
    script = tmp_path / "finetune.py"  # one of the steps that would otherwise go to the warm Python
    script.write_text("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    told = '{"recipe": {}, "inputs": {}, "outputs": {}, "threads": 1, "gpus": 2}'
    command = [sys.executable, str(SCRIPTS / "job.py"), str(script), told]
    done = subprocess.run(command, env=machine, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0,1"
