"""A job that is described by more than one argument of a command can hold."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bridge.jobs import job_file


def test_a_job_of_any_number_of_tasks_has_a_short_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark of 300 tasks would end in `Argument list too long`; a dry run would leave files."""
    monkeypatch.chdir(tmp_path)
    files = {"task_vectors": [f"a-vector-with-a-long-name-{n}.safetensors" for n in range(3000)]}

    def file(writing: bool) -> str:
        run = SimpleNamespace(writing=writing)
        return job_file(run, {"params": {"merge": "sum"}}, files, {"artifact": "x"}, 1, "tiny")  # type: ignore[arg-type]

    assert file(writing=False) == file(writing=False) and not list(tmp_path.iterdir())
    assert len(file(writing=True)) < 100 and json.loads(Path(file(writing=True)).read_text())["inputs"] == files
