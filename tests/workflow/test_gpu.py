"""Every job that asks for a GPU has one to itself, and gives it back when it dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from gpus import LISTED, fake_nvml, replaced_cuda
from processes import job_command
from project import ROOT
from tallmasks.models import cuda

WITHOUT_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="asks what happens where CUDA gives nothing")
RUNNER = ROOT / "workflow" / "runner"
LEASE = (
    "import gpu, os, sys; gpu.lease(*map(int, sys.argv[1:])); print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); "
)


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of jobs on a machine with four fake devices, and with leases of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    paths = os.pathsep.join([str(fake_nvml(tmp_path / "tools")), str(RUNNER)])
    return kept | {"TALLMASKS_WARM": "0", "TMPDIR": str(tmp_path), "PYTHONPATH": paths}


def job(machine: dict[str, str], count: int, work: str) -> subprocess.Popen[str]:
    """A job that leases `count` devices, says which, and then becomes the program `work`, as jobs do."""
    command = [sys.executable, "-c", f"{LEASE} os.execvp('sh', ['sh', '-c', {work!r}])", str(count)]
    return subprocess.Popen(command, env=machine, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def said(process: subprocess.Popen[str]) -> set[str]:
    assert process.stdout
    return set(process.stdout.readline().strip().split(","))


@pytest.mark.parametrize("allocation", [{}, {"SLURM_JOB_ID": "7"}], ids=["a machine", "salloc"])
def test_jobs_at_once_have_different_devices(machine: dict[str, str], allocation: dict[str, str]) -> None:
    """Two fine-tunings would share device 0 and its memory, with three devices idle."""
    machine |= allocation
    jobs = [job(machine, count, "exec sleep 600") for count in (1, 2, 1)]
    devices = [said(process) for process in jobs]
    assert [len(names) for names in devices] == [1, 2, 1]
    assert set.union(*devices) == set(LISTED.values())
    waiting = job(machine, 1, "true")
    time.sleep(0.5)
    assert waiting.poll() is None
    os.kill(jobs[0].pid, signal.SIGKILL)  # a killed job gives its device back
    assert said(waiting) == devices[0]
    for process in (*jobs, waiting):
        process.kill()
        process.wait(60)


def test_many_jobs_never_overlap(machine: dict[str, str], tmp_path: Path) -> None:
    """Jobs of two Snakemakes would meet on one device now and then."""
    work = f"mkdir {tmp_path}/busy-$CUDA_VISIBLE_DEVICES && sleep 0.05 && rmdir {tmp_path}/busy-$CUDA_VISIBLE_DEVICES"
    jobs = [job(machine, 1, work) for _ in range(16)]
    assert {process.wait(60) for process in jobs} == {0}


def test_a_number_and_its_uuid_are_one_lease(machine: dict[str, str]) -> None:
    """Two Snakemakes, told of a GPU in two ways, would compute on it at the same time."""
    first = job(machine | {"TALLMASKS_GPUS": "1"}, 1, "exec sleep 600")
    assert said(first) == {LISTED["1"]}
    second = job(machine | {"CUDA_VISIBLE_DEVICES": LISTED["1"]}, 1, "true")
    time.sleep(1)
    assert second.poll() is None
    first.kill()
    first.wait(60)
    assert said(second) == {LISTED["1"]} and second.wait(60) == 0


@pytest.mark.parametrize(("assigned", "taken"), [("2", {"2"}), ("2,3", {LISTED["2"], LISTED["3"]})])
def test_of_a_submitted_job_the_scheduler_decides(machine: dict[str, str], assigned: str, taken: set[str]) -> None:
    """A job would move from the device that slurm gave it to one that slurm gave to another; or two steps of one
    submission with two devices would share the first."""
    given = machine | {"CUDA_VISIBLE_DEVICES": assigned}
    done = subprocess.run(
        [sys.executable, "-c", LEASE, "1", "1"], env=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in taken


def run_job(machine: dict[str, str], folder: Path, code: str, step: str = "finetune", gpus: int = 1) -> list[str]:
    """The command of a job that runs `code` as one of the workflow's steps."""
    script = folder / f"{step}.py"
    script.write_text(code)
    told = {"recipe": {"params": {}}, "inputs": {}, "outputs": {}, "threads": 1, "gpus": gpus}
    return job_command(folder, script, told)


MODEL = """
from tallmasks.models import cuda
def run(job):
    print(cuda.choose("cuda" if job.gpus else "cpu"))
"""


@pytest.mark.parametrize(
    ("step", "gpus", "variables", "complaint"),
    [
        ("finetune", 5, {}, "5 GPUs wanted for one job, 4 found (GPU-0"),
        ("finetune", 1, {"TALLMASKS_GPUS": "7"}, "TALLMASKS_GPUS: '7' names no GPU of this machine; there is 0 (GPU-0"),
        pytest.param("finetune", 1, {}, "to compute on a GPU, and cannot: ", marks=WITHOUT_CUDA),
    ],
)
def test_a_job_without_its_gpu_says_so(
    machine: dict[str, str], tmp_path: Path, step: str, gpus: int, variables: dict[str, str], complaint: str
) -> None:
    """It would wait for ever, or compute for weeks on a CPU and end as if all were well."""
    command = run_job(machine, tmp_path, MODEL, step, gpus)
    done = subprocess.run(command, env=machine | variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("error: ") and complaint in last, done.stderr
    assert "Traceback" not in done.stderr and not done.stdout


@pytest.mark.skipif(cuda.driver() is not None, reason="asks what happens without a driver")
def test_without_a_driver_no_number_helps(machine: dict[str, str], tmp_path: Path) -> None:
    """TALLMASKS_GPUS=3 on a machine without CUDA would end well, with nothing computed on a GPU."""
    given = machine | {"TALLMASKS_GPUS": "3", "PYTHONPATH": str(RUNNER)}
    command = run_job(machine, tmp_path, MODEL)
    done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "'3' names no GPU of this machine; there is none: no NVIDIA driver found" in done.stderr


def test_a_job_with_no_gpu_sees_none(machine: dict[str, str], tmp_path: Path) -> None:
    """A step that is to run on the CPU would take memory on a GPU that another job leased."""
    code = MODEL + "    import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    command = run_job(machine, tmp_path, code, gpus=0)
    done = subprocess.run(command, env=machine, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == ["cpu", "''"]


FORK = """
import os, sys, time
import torch
def run(job):
    print(os.getpid(), os.getppid(), os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.is_available(), flush=True)
    torch.cuda.init()
    time.sleep(600)
"""


def test_a_gpu_job_is_a_fork_and_initialises_cuda_itself(machine: dict[str, str], tmp_path: Path) -> None:
    """Each of ninety jobs would import for ten seconds; or a server that had touched CUDA would break every fork."""
    asked = tmp_path / "asked.txt"
    fake = replaced_cuda(tmp_path / "site", asked)
    given = machine | {
        "TALLMASKS_GPUS": "2",
        "TALLMASKS_WARM": str(tmp_path / "warm"),
        "PYTHONPATH": os.pathsep.join([machine["PYTHONPATH"], str(ROOT / "src"), str(fake)]),
    }
    (folder := tmp_path / "project").mkdir()
    start = [sys.executable, "-P", str(RUNNER / "warm.py"), given["TALLMASKS_WARM"], str(os.getpid()), "torch"]
    warm = subprocess.Popen(start, env=given, stdout=subprocess.PIPE, text=True)
    assert warm.stdout and warm.stdout.readline() == "listening\n"
    command = run_job(machine, folder, FORK)
    process = subprocess.Popen(command, env=given, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    worker, server, visible, available = process.stdout.readline().split()
    assert (visible, available) == (LISTED["2"], "True") and int(worker) != process.pid
    assert int(server) == warm.pid
    waiting = job(given, 1, "true")
    time.sleep(1)
    assert waiting.poll() is None, "the lease is the job's as long as it runs"
    assert set(asked.read_text().split()) == {worker}, "the server never asked CUDA for anything"
    process.kill()
    process.wait(60)
    assert said(waiting) == {LISTED["2"]} and waiting.wait(60) == 0
    assert not Path("/proc", worker, "cmdline").exists() or not Path("/proc", worker, "cmdline").read_bytes()
    warm.kill()
    warm.wait(60)
