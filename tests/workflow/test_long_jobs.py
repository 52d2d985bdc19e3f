"""A job that is described by more than one argument of a command can hold."""

import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.jobs import LONGEST, Jobs
from conftest import ROOT

ECHO = "def run(job):\n    print(len(job.inputs['task_vectors']), job.params['merge'])\n"


@pytest.mark.parametrize("tasks", [2, 3000])
def test_a_job_of_any_number_of_tasks_starts(tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark of 300 tasks would end in `Argument list too long`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "echo.py").write_text(ECHO)
    files = [tmp_path / f"a-vector-with-a-long-name-{n}.safetensors" for n in range(tasks)]
    for file in files:
        file.touch()
    run = SimpleNamespace(runs_jobs=False)
    recipe = {"params": {"merge": "sum"}}
    words = Jobs(run).words("echo", recipe, {"task_vectors": files}, {"artifact": "x"}, 1)  # type: ignore[arg-type]
    assert len(words) < LONGEST + 1000 and ("@.tallmasks/jobs/" in words) == (tasks > 1000)
    command = shlex.split(words)[1:]
    command[2] = str(tmp_path / "echo.py")
    done = subprocess.run(
        command, env={"TALLMASKS_WARM": "0", "PATH": str(Path(sys.executable).parent)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"{tasks} sum" in done.stdout
