"""The warm Python: its forks are the jobs, it changes nothing but the time, and a job needs no server."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import WARM, gone, job_command, serve, wait_for
from project import ROOT, warm_python

BEGIN, END = "import os, sys, time\nfrom job import main\n\ndef run(job):\n", "\n\nmain(run)\n"


def probe(folder: Path, code: str, warm: Path | str, *imports: str) -> subprocess.Popen[str]:
    """Start a job that runs `code`, and looks for the warm Python in the folder `warm`."""
    script = folder / "evaluate.py"
    script.write_text(BEGIN + "".join(f"    {line}\n" for line in code.strip().splitlines()) + END)
    told = {"recipe": {}, "inputs": {}, "outputs": {}, "threads": 1, "imports": imports}
    command = job_command(folder, script, told)
    return subprocess.Popen(
        [command[0], str(WARM), *command[1:]],
        cwd=folder,
        env={**os.environ, "TALLMASKS_WARM": str(warm), "PYTHONPATH": str(ROOT / "workflow" / "scripts")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A server without imports, that this process owns: its folder and its process."""
    with serve(tmp_path / "warm") as server:
        yield tmp_path / "warm", server.pid
        server.kill()


@pytest.mark.parametrize("warm", [False, True])
def test_a_job_has_its_threads_streams_folder_and_status(tmp_path: Path, warm: bool) -> None:
    """A job would take all cores from the others, lose its log, or fail unseen."""
    code = """
forked = "torch" in sys.modules
import numba, numpy, threadpoolctl, torch
print({pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"})
print([os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")], torch.get_num_threads(), os.getcwd())
print(numba.njit(lambda n: n + 1)(1), numba.get_num_threads())  # which reads the environment when it compiles
print(forked)
print("to the log", file=sys.stderr)
sys.exit(7)
"""
    status, output, errors = ended(probe(tmp_path, code, warm_python() if warm else "0", "torch", "numba"))
    assert status == 7, errors
    assert output.strip() == f"{{1}}\n['1', '1'] 1 {tmp_path}\n2 1\n{warm}"
    assert errors.strip() == "to the log"


@pytest.mark.parametrize("warm", [False, True])
def test_a_killed_job_leaves_nothing_behind(tmp_path: Path, bare: tuple[Path, int], warm: bool) -> None:
    """After kill -9 of Snakemake its jobs would go on beside those of the next run."""
    process = probe(tmp_path, "print(os.getpid(), flush=True); time.sleep(600)", bare[0] if warm else "0")
    assert process.stdout
    worker = int(process.stdout.readline())
    assert (worker != process.pid) == warm
    process.kill()
    process.wait(60)
    wait_for(lambda: gone(worker))


def test_a_job_that_dies_is_an_error(tmp_path: Path, bare: tuple[Path, int]) -> None:
    """A job killed for its memory would pass for done."""
    status, _, errors = ended(probe(tmp_path, "os.kill(os.getpid(), 9)", bare[0]))
    assert status == 137 and errors


def test_a_job_needs_no_server(tmp_path: Path, bare: tuple[Path, int]) -> None:
    """A run would stop when its server is killed for its memory."""
    assert ended(probe(tmp_path, "print(os.getppid())", bare[0]))[1].startswith(f"{bare[1]}\n")
    os.kill(bare[1], signal.SIGKILL)
    assert ended(probe(tmp_path, "print(os.getppid())", bare[0]))[1].startswith(f"{os.getpid()}\n")
