"""The warm Python: it works, it dies, it serves its own user, and it changes nothing but the time."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store.project import ROOT, Project

pytestmark = pytest.mark.xdist_group("warm")  # one of these tests kills the server that the others use
SCRIPTS = ROOT / "workflow" / "scripts"


def probe(folder: Path, code: str, warm: str = "1", threads: int = 1) -> subprocess.Popen[str]:
    """Start `code` as a job, under the name of a step that goes to the warm Python."""
    script = folder / "evaluate.py"
    script.write_text(code)
    told = json.dumps({"recipe": {}, "inputs": {}, "outputs": {}, "threads": threads})
    return subprocess.Popen(
        [sys.executable, str(SCRIPTS / "job.py"), str(script), told],
        cwd=folder,
        env={**os.environ, "TALLMASKS_WARM": warm, "PYTHONPATH": os.pathsep.join([str(SCRIPTS), str(ROOT / "src")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate()
    return process.returncode, output, errors


@pytest.mark.parametrize("warm", ["0", "1"])
def test_a_job_has_its_threads_streams_folder_and_status(tmp_path: Path, warm: str) -> None:
    """A job would take all cores from the others, lose its log, or fail unseen."""
    code = """
import os, sys
from job import main
def run(job):
    import numpy, threadpoolctl, torch
    print({pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"})
    print([os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")], torch.get_num_threads(), os.getcwd())
    print("to the log", file=sys.stderr)
    sys.exit(7)
main(run)
"""
    status, output, errors = ended(probe(tmp_path, code, warm))
    assert status == 7, errors
    assert output.strip() == f"{{1}}\n['1', '1'] 1 {tmp_path}"
    assert errors.strip() == "to the log"


def test_a_killed_job_leaves_nothing_behind(tmp_path: Path) -> None:
    """After kill -9 of Snakemake its jobs would go on beside those of the next run."""
    process = probe(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    assert process.stdout
    worker = int(process.stdout.readline())
    process.kill()
    process.wait()
    while Path("/proc", str(worker), "cmdline").exists() and Path("/proc", str(worker), "cmdline").read_bytes():
        time.sleep(0.05)  # a test that hangs here has found a job that lives on


def test_a_job_that_dies_is_an_error(tmp_path: Path) -> None:
    """A job killed for its memory would pass for done."""
    status, _, errors = ended(probe(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    assert status == 137 and "out of memory, or killed" in errors


def test_jobs_go_on_when_the_server_dies(tmp_path: Path) -> None:
    """Every running job would be lost, and no other could start."""
    code = "import os, sys, time; print(os.getppid(), flush=True); time.sleep(2); print('done')"
    process = probe(tmp_path, code)
    assert process.stdout
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    assert ended(process)[:2] == (0, "done\n")
    assert ended(probe(tmp_path, "print('again')"))[:2] == (0, "again\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_turned_away(tmp_path: Path) -> None:
    """On a shared machine anybody could run a program as the user whose jobs are running."""
    assert ended(probe(tmp_path, "print('ready')"))[0] == 0
    sys.path.insert(0, str(SCRIPTS))
    names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@tallmasks-warm-" in line]
    sys.path.pop(0)
    victim = tmp_path / "victim.py"
    victim.write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    request = json.dumps({"script": str(victim), "arguments": [], "environment": {}, "folder": str(tmp_path)}).encode()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        for name in set(names):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect("\0" + name[1:])
                try:
                    socket.send_fds(connection, [struct.pack("!I", len(request))], [0, 1, 2])
                    connection.sendall(request)
                    connection.recv(4)
                except OSError:
                    pass
        os._exit(0)
    os.waitpid(child, 0)
    assert not (tmp_path / "owned").exists()


def test_without_it_the_same_bytes_come_out(project: Project) -> None:
    """Results would depend on how a job was started."""
    cold = Project(project.root, {"TALLMASKS_WARM": "0"})
    before = project.sha256("store", "results")
    made = ["checkpoints/mnist-s0-*", "derived/evaluations/task_arithmetic-2tasks-*", "heads/dtd-*"]
    targets = [project.one(f"store/tiny/{pattern}") for pattern in made]
    for path in targets:
        path.unlink()
    jobs = cold.snakemake(*(str(path.relative_to(project.root)) for path in targets)).jobs
    assert jobs == {"finetune": 1, "evaluate": 1, "head": 1}
    assert project.sha256("store", "results") == before
