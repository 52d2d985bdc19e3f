"""A job that is described by more than one argument of a command can hold."""

import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.jobs import Jobs
from conftest import ROOT

ECHO = "def run(job):\n    print(len(job.inputs['task_vectors']), job.params['merge'])\n"


def test_a_job_of_any_number_of_tasks_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark of 300 tasks would end in `Argument list too long`; a dry run would leave files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "echo.py").write_text(ECHO)
    files = [f"a-vector-with-a-long-name-{n}.safetensors" for n in range(3000)]

    def words(writing: bool) -> str:
        jobs = Jobs(SimpleNamespace(writing=writing, submitted=False))  # type: ignore[arg-type]
        return jobs.words("echo", {"params": {"merge": "sum"}}, {"task_vectors": files}, {"artifact": "x"}, 1)

    words(writing=False)
    assert not (tmp_path / ".tallmasks").exists()
    for file in files:
        (tmp_path / file).touch()
    command = shlex.split(words(writing=True))[1:]
    command[2] = str(tmp_path / "echo.py")
    done = subprocess.run(
        command, env={"TALLMASKS_WARM": "0", "PATH": str(Path(sys.executable).parent)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "3000 sum" in done.stdout
