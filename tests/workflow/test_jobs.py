"""Jobs as the workflow runs them: one process, one JSON, bad input on the way."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import ROOT
from processes import job_command
from reproduction.artifacts.labels import as_metadata
from reproduction.plan import project  # noqa: F401
from reproduction.plan.node import STAGES, Node, stage_versions
from tallmasks import methods
from tallmasks.io.tensor_files import write_tensors


def merge_job(folder: Path, **changes: object) -> tuple[Node, dict[str, Any]]:
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
    """The merge step by hand: nothing says where the package is."""
    command = job_command(folder, ROOT / "workflow" / "scripts" / "merge.py", told)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_job_believes_no_damaged_input_and_the_next_run_makes_it_again(tmp_path: Path) -> None:
    """A zeroed task vector would be merged, masked, evaluated and tabulated."""
    node, told = merge_job(tmp_path)
    damaged = Path(told["inputs"]["task_vectors"][1])
    content = (tmp_path / damaged).read_bytes()
    (tmp_path / damaged).unlink()
    (tmp_path / damaged).write_bytes(content[:-8] + bytes(8))
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


@pytest.mark.parametrize(
    "changes",
    [
        {"version": stage_versions()["merge"] + 1},
        {"params": {"merge": "sum", "code": {"merges": {"sum": "0" * 12}}}},
        {"params": {"merge": "sum", "family": "json", "family_code": "0" * 12}},
    ],
)
def test_a_job_refuses_what_other_code_was_to_make(changes: dict[str, Any], tmp_path: Path) -> None:
    """After `git checkout` of another branch, this branch's names would get that one's bytes."""
    _, told = merge_job(tmp_path, **changes)
    assert "the code has changed" in refused(run_merge(tmp_path, told))
