"""Jobs as the workflow runs them: one process, one JSON, bad input on the way."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from tallmasks.checkpoints import open_tensors, write_tensors

TRIMS = [0.1, 0.2]
STATE = {
    "visual.a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "visual.b": np.ones(4, np.float32),
    "transformer.c": np.ones(5, np.float32),
}
CHECKPOINT = {name: value + 1 for name, value in STATE.items() if name.startswith("visual.")}


def run_task_vector(folder: Path) -> subprocess.CompletedProcess[str]:
    """The task_vector step on folder/pretrained.safetensors and folder/checkpoint.safetensors."""
    told = {
        "recipe": {"kind": "task_vector", "params": {"family": "clip", "fractions": TRIMS}},
        "inputs": {
            "pretrained": [str(folder / "pretrained.safetensors")],
            "checkpoint": [str(folder / "checkpoint.safetensors")],
        },
        "outputs": {"artifact": str(folder / "out" / "task_vector.safetensors")},
        "threads": 1,
    }
    scripts = ROOT / "workflow" / "scripts"
    command = [sys.executable, str(scripts / "job.py"), str(scripts / "task_vector.py"), json.dumps(told)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "pretrained.safetensors", STATE, {})
    write_tensors(tmp_path / "checkpoint.safetensors", CHECKPOINT, {})
    return tmp_path


def test_a_job_leaves_one_complete_file_with_its_recipe(folder: Path) -> None:
    """An artifact could not say how it was made, or could be edited by accident."""
    done = run_task_vector(folder)
    assert done.returncode == 0, done.stderr
    (out,) = (folder / "out").iterdir()
    tensors = open_tensors(out)
    assert json.loads(tensors.metadata["recipe"])["kind"] == "task_vector"
    assert not stat.S_IMODE(out.stat().st_mode) & 0o222
    np.testing.assert_array_equal(tensors.flat(), np.ones(10, np.float32))


def spoil(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    path = folder / "checkpoint.safetensors"
    path.unlink()
    write_tensors(path, tensors, {})


def truncate(folder: Path) -> None:
    path = folder / "checkpoint.safetensors"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-3])


def write_text(folder: Path) -> None:
    path = folder / "checkpoint.safetensors"
    path.unlink()
    path.write_text("<html>not found</html>")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "checkpoint.safetensors"),
        (write_text, "checkpoint.safetensors"),
        (lambda folder: (folder / "checkpoint.safetensors").unlink(), "checkpoint.safetensors"),
        (lambda folder: spoil(folder, {"visual.a": CHECKPOINT["visual.a"]}), "visual.b"),
        (lambda folder: spoil(folder, CHECKPOINT | {"visual.extra": np.ones(2, np.float32)}), "visual.extra"),
        (lambda folder: spoil(folder, CHECKPOINT | {"visual.b": np.ones(5, np.float32)}), "visual.b"),
        (lambda folder: spoil(folder, CHECKPOINT | {"visual.b": np.full(4, np.nan, np.float32)}), "visual.b"),
        (lambda folder: spoil(folder, CHECKPOINT | {"visual.b": np.full(4, np.inf, np.float32)}), "visual.b"),
    ],
)
def test_a_bad_checkpoint_is_named_and_nothing_is_left(folder: Path, damage, message: str) -> None:
    """A damaged download would end in a traceback, in a half-written artifact, or in a table of nonsense."""
    damage(folder)
    done = run_task_vector(folder)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert "Traceback" not in done.stderr
    out = folder / "out"
    assert not out.exists() or not list(out.iterdir())
