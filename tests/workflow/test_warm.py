"""The warm Python: it works, it dies with its owner, it serves nobody else, and it changes nothing but the time."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import gone, job_command, wait_for
from project import ROOT, warm_python

RUNNER = ROOT / "workflow" / "runner"
BARE = "import sys; sys.path.insert(0, {scripts!r}); import warm; {then}"
"""The server without what it imports, or the client with less patience."""


def probe(folder: Path, code: str, warm: Path | str, start: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start `code` as a job that looks for the warm Python in the folder `warm`."""
    script = folder / "evaluate.py"
    script.write_text(code)
    command = job_command(folder, script, {"recipe": {}, "inputs": {}, "outputs": {}, "threads": 1})
    return subprocess.Popen(
        [command[0], *(start or command[1:2]), *command[2:]],
        cwd=folder,
        env={**os.environ, "TALLMASKS_WARM": str(warm), "PYTHONPATH": str(RUNNER)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A server without imports, far down in the folders, that this process owns: its folder and its process."""
    folder = tmp_path.joinpath(*["a-long-name" * 10] * 3, "warm")
    then = f"from pathlib import Path; warm.serve(Path({str(folder)!r}), {os.getpid()}, ())"
    command = [sys.executable, "-c", BARE.format(scripts=str(RUNNER), then=then)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdout.readline() == "listening\n"
        yield folder, server.pid
        server.kill()


PARENT = "import os, sys; print(os.getppid()); print('torch' in sys.modules)"


@pytest.mark.parametrize("warm", [False, True])
def test_a_job_has_its_threads_streams_folder_and_status(
    tmp_path: Path, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job would take all cores from the others, lose its log, or fail unseen; or import for ten seconds because it
    runs in an allocation of slurm's."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    code = """
import os, sys
forked = "torch" in sys.modules
def run(job):
    import numba, numpy, threadpoolctl, torch
    print({pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"})
    print([os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")], torch.get_num_threads(), os.getcwd())
    print(numba.njit(lambda n: n + 1)(1), numba.get_num_threads())  # which reads the environment when it compiles
    print(forked)
    print("to the log", file=sys.stderr)
    sys.exit(7)
"""
    status, output, errors = ended(probe(tmp_path, code, warm_python() if warm else "0"))
    assert status == 7, errors
    assert output.strip() == f"{{1}}\n['1', '1'] 1 {tmp_path}\n2 1\n{warm}"
    assert errors.strip() == "to the log"


def test_a_killed_job_leaves_nothing_behind(tmp_path: Path, bare: tuple[Path, int]) -> None:
    """After kill -9 of Snakemake its jobs would go on beside those of the next run."""
    process = probe(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)", bare[0])
    assert process.stdout
    worker = int(process.stdout.readline())
    assert worker != process.pid
    process.kill()
    process.wait(60)
    wait_for(lambda: gone(worker))


def test_a_job_that_dies_is_an_error(tmp_path: Path, bare: tuple[Path, int]) -> None:
    """A job killed for its memory would pass for done."""
    status, _, errors = ended(probe(tmp_path, "import os; os.kill(os.getpid(), 9)", bare[0]))
    assert status == 137 and "out of memory, or killed" in errors


def test_jobs_go_on_when_the_server_dies(tmp_path: Path, bare: tuple[Path, int]) -> None:
    """Every running job would be lost, and no other could start."""
    process = probe(tmp_path, "import os, time; print(os.getppid(), flush=True); time.sleep(1); print('done')", bare[0])
    assert process.stdout and int(process.stdout.readline()) == bare[1]
    os.kill(bare[1], signal.SIGKILL)
    assert ended(process)[:2] == (0, "done\n")
    assert ended(probe(tmp_path, "print('again')", bare[0]))[:2] == (0, "again\n")


def impatient(tmp_path: Path, warm: Path) -> subprocess.Popen[str]:
    """A job that says whose child it is, and waits a second for the server to do something."""
    then = "warm.PATIENCE = 1.0; import job; sys.exit(job.start(*sys.argv[1:]))"
    return probe(tmp_path, PARENT, warm, ("-c", BARE.format(scripts=str(RUNNER), then=then)))


def test_a_stopped_server_holds_up_no_job(tmp_path: Path, bare: tuple[Path, int]) -> None:
    """A run would hang for ever, and so would the next one."""
    assert ended(impatient(tmp_path, bare[0]))[1] == f"{bare[1]}\nFalse\n"
    os.kill(bare[1], signal.SIGSTOP)
    assert ended(impatient(tmp_path, bare[0]))[1] == f"{os.getpid()}\nFalse\n"


def test_whoever_listens_in_its_place_holds_up_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that took the name would hang every job until it leaves."""
    folder = tmp_path / "warm"
    folder.mkdir(mode=0o700)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        listener.listen()
        assert ended(impatient(tmp_path, folder))[1] == f"{os.getpid()}\nFalse\n"
        folder.chmod(0o770)
        assert ended(probe(tmp_path, PARENT, folder))[1] == f"{os.getpid()}\nFalse\n", "others could have put it there"


KNOCK = """
import os, socket, sys
os.chdir({folder!r})
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(60)
    connection.connect("socket")
    sys.exit(0 if connection.recv(1) == b"+" else 3)
"""


def test_only_the_owners_jobs_are_served(bare: tuple[Path, int]) -> None:
    """A process of the same user in a sandbox, or another user's, would have code run outside of it."""
    command = [sys.executable, "-c", KNOCK.format(folder=str(bare[0]))]
    assert subprocess.run(command).returncode == 0
    restrict = lambda: ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # noqa: E731  # PR_SET_NO_NEW_PRIVS
    assert subprocess.run(command, preexec_fn=restrict).returncode == 3
    sandbox = ["unshare", "--user", "--map-current-user", "--net"]
    if not subprocess.run([*sandbox, "true"], capture_output=True).returncode:  # where namespaces can be made
        assert subprocess.run([*sandbox, *command]).returncode == 3
    said = bare[0].parent / "said"  # by a process whose own parent has ended, so that it has another one
    shell = f'(sleep 0.5; "$@"; echo $? > {said}.new; mv {said}.new {said}) &'
    subprocess.run(["setsid", "sh", "-c", shell, "sh", *command], check=True)
    wait_for(said.exists)
    assert int(said.read_text()) == 3
