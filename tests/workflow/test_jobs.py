"""Jobs as the workflow runs them: one process, one JSON, bad input on the way."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from processes import job_command
from tallmasks import methods
from tallmasks.artifacts.labels import as_metadata, digest_of
from tallmasks.io.tensor_files import open_tensors, write_tensors
from tallmasks.plan import index  # noqa: F401
from tallmasks.plan.node import STAGES, Node, stage_versions

TRIMS = [0.1, 0.2]
STATE = {
    "visual.a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "visual.b": np.ones(4, np.float32),
    "transformer.c": np.ones(5, np.float32),
}
CHECKPOINT = {name: value + 1 for name, value in STATE.items() if name.startswith("visual.")}


def run_task_vector(folder: Path) -> subprocess.CompletedProcess[str]:
    """The task_vector step on two files of a folder, by hand: nothing says where the package is."""
    told = {
        "recipe": {
            "kind": "task_vector",
            "params": {"family": "clip", "fractions": TRIMS, "fractions_of": "parameters"},
        },
        "inputs": {
            "pretrained": [str(folder / "pretrained.safetensors")],
            "checkpoint": [str(folder / "checkpoint.safetensors")],
        },
        "outputs": {"artifact": str(folder / "out" / "task_vector.safetensors")},
        "threads": 1,
    }
    command = job_command(folder, ROOT / "workflow" / "scripts" / "task_vector.py", told)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "pretrained.safetensors", STATE, {})
    write_tensors(tmp_path / "checkpoint.safetensors", CHECKPOINT, {})
    return tmp_path


def test_a_job_leaves_one_complete_file_with_its_recipe(folder: Path) -> None:
    """An artifact could not say how it was made."""
    done = run_task_vector(folder)
    assert done.returncode == 0, done.stderr
    (out,) = (folder / "out").iterdir()
    tensors = open_tensors(out)
    assert json.loads(tensors.metadata["recipe"])["kind"] == "task_vector"
    np.testing.assert_array_equal(tensors.flat(), np.ones(10, np.float32))


def truncate(checkpoint: Path) -> None:
    checkpoint.write_bytes(checkpoint.read_bytes()[:-3])


def diverge(checkpoint: Path) -> None:
    checkpoint.unlink()
    write_tensors(checkpoint, CHECKPOINT | {"visual.b": np.full(4, np.nan, np.float32)}, {})


@pytest.mark.parametrize(("damage", "message"), [(truncate, "checkpoint.safetensors"), (diverge, "visual.b")])
def test_a_bad_checkpoint_is_named_and_nothing_is_left(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    """A damaged download would leave a half-written artifact, or a table of nonsense."""
    checkpoint = folder / "checkpoint.safetensors"
    checkpoint.chmod(0o644)
    damage(checkpoint)
    assert message in refused(run_task_vector(folder))
    assert not any((folder / "out").glob("*"))


def merge_job(folder: Path, **changes: object) -> tuple[Node, dict]:
    """The job that merges two task vectors in a project's store, and the node that it makes."""
    vectors = [Node(STAGES["task_vector"], "tiny", name, {"task": name}) for name in ("mnist", "svhn")]
    for number, vector in enumerate(vectors):
        if not (folder / vector.path).exists():
            made = as_metadata(vector.recipe)
            facts = {"format": "tallmasks/task_vector/1", "thresholds": "{}", "frozen": "0"}
            write_tensors(folder / vector.path, {"a": np.full(6, number + 1, np.float32)}, made | facts)
    params = {"merge": "sum", "code": {"merges": {"sum": methods.get_merge("sum").code}}}
    node = Node(STAGES["merge"], "tiny", "sum-2tasks-s0", params, {"task_vectors": tuple(vectors)})
    return node, {
        "recipe": node.recipe | changes,
        "inputs": {"task_vectors": [vector.path for vector in vectors]},
        "outputs": {"artifact": node.path},
        "threads": 2,
    }


def run_merge(folder: Path, told: dict) -> subprocess.CompletedProcess[str]:
    command = job_command(folder, ROOT / "workflow" / "scripts" / "merge.py", told)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def zero(path: Path) -> None:
    """Damage that leaves the header as it was."""
    content = bytearray(path.read_bytes())
    content[-8:] = bytes(8)
    path.chmod(0o644)
    path.write_bytes(content)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_job_believes_no_damaged_input_and_the_next_run_makes_it_again(tmp_path: Path) -> None:
    """A zeroed task vector would be merged, masked, evaluated and tabulated."""
    node, told = merge_job(tmp_path)
    damaged = Path(told["inputs"]["task_vectors"][1])
    zero(tmp_path / damaged)
    message = refused(run_merge(tmp_path, told))
    assert str(damaged) in message and ".tallmasks/damaged" in message
    assert not (tmp_path / damaged).exists() and (tmp_path / ".tallmasks/damaged" / damaged).exists()
    assert not (tmp_path / node.path).exists()
    assert str(damaged) in refused(run_merge(tmp_path, told))
    _, again = merge_job(tmp_path)  # which makes it again
    assert run_merge(tmp_path, again).returncode == 0


def test_a_job_refuses_another_task_s_file(tmp_path: Path) -> None:
    """A whole file under the wrong name, or in the wrong place of a job, would pass."""
    _, told = merge_job(tmp_path)
    first, second = (tmp_path / path for path in told["inputs"]["task_vectors"])
    told["inputs"]["task_vectors"].reverse()
    assert first.name in refused(run_merge(tmp_path, told))
    told["inputs"]["task_vectors"].reverse()
    second.unlink()
    second.write_bytes(first.read_bytes())
    assert second.name in refused(run_merge(tmp_path, told))


@pytest.mark.parametrize("what", ["stage", "method", "family"])
def test_a_job_refuses_what_other_code_was_to_make(what: str, tmp_path: Path) -> None:
    """After `git checkout` of another branch, this branch's names would get that one's bytes."""
    changes = {
        "stage": {"version": stage_versions()["merge"] + 1},
        "method": {"params": {"merge": "sum", "code": {"merges": {"sum": "0" * 12}}}},
        "family": {"params": {"merge": "sum", "family": "json", "family_code": "0" * 12}},
    }
    _, told = merge_job(tmp_path, **changes[what])
    assert "the code has changed" in refused(run_merge(tmp_path, told))


def test_a_source_file_that_changed_is_refused(tmp_path: Path) -> None:
    """Pretrained weights exchanged while a run is at work would be mixed with the old ones."""
    _, told = merge_job(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"new")
    told["inputs"]["pretrained"] = ["weights.safetensors"]
    told["recipe"] = told["recipe"] | {"sources": {"pretrained": digest_of("old")}}
    assert "weights.safetensors has changed" in refused(run_merge(tmp_path, told))
