"""One job on a GPU makes several artifacts of its stage; each stays a job of its own."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bridge.gpu_jobs import GpuJobs
from bridge.jobs import Jobs
from bridge.run import Run
from conftest import ROOT
from gpus import fake_smi, path_with
from small_clip import SPEC, save_random
from tallmasks.plan.project import open_plan
from tallmasks.store.tensor_files import open_tensors
from tallmasks.tasks.drawn import TASKS

RUNNER = ROOT / "workflow" / "runner"
# As head.py and evaluate_task.py do it, with numbers for models: a model that is loaded leaves a line.
STEP = """
import ahead
import numpy as np
from job import main
from tallmasks.store.tensor_files import write_tensors
from tallmasks.store.errors import TallmasksError

def run(job):
    with open("loaded.txt", "a") as file:
        file.write("model\\n")
    ahead.each(job, make)

def make(job):
    value = job.params["value"]
    if value < 0:
        raise TallmasksError(f"{value} is not to be had")
    write_tensors(job.output, {"value": np.full(3, value, np.float32)}, job.metadata)

main(run)
"""


def told(value: int, *inputs: str) -> dict[str, Any]:
    output = f"store/m/heads/{value}.safetensors"
    return {"recipe": {"params": {"value": value}}, "inputs": {"of": list(inputs)}, "outputs": {"artifact": output}}


class Folder:
    """A project with jobs that may make each other's artifacts."""

    def __init__(self, root: Path, jobs: list[dict[str, Any]]) -> None:
        self.root, self.jobs = root, jobs
        (root / "head.py").write_text(STEP)
        (root / ".tallmasks" / "ahead").mkdir(parents=True)
        (root / ".tallmasks" / "ahead" / "m-head.json").write_text(json.dumps(jobs))
        kept = {name: value for name, value in os.environ.items() if name not in {"CUDA_VISIBLE_DEVICES"}}
        path = path_with(fake_smi(root / "tools"), os.environ["PATH"])
        paths = os.pathsep.join([str(RUNNER), str(ROOT / "src")])
        self.environment = kept | {"TMPDIR": str(root), "TALLMASKS_WARM": "0", "PATH": path, "PYTHONPATH": paths}

    def run(self, place: int, ahead: str | None = ".tallmasks/ahead/m-head.json") -> subprocess.CompletedProcess[str]:
        text = json.dumps(self.jobs[place] | {"gpus": 1, "ahead": ahead})
        return subprocess.run(
            [sys.executable, str(RUNNER / "job.py"), "head.py", text],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def made(self) -> list[str]:
        return sorted(path.stem for path in (self.root / "store/m/heads").glob("*"))

    @property
    def loaded(self) -> int:
        return (self.root / "loaded.txt").read_text().count("model")


def test_the_model_is_loaded_once_for_all_that_can_be_made(tmp_path: Path) -> None:
    """Sixty jobs would each load the model for longer than they compute."""
    folder = Folder(tmp_path, [told(1), told(2), told(3, "later"), told(4)])
    first = folder.run(0)
    assert first.returncode == 0, first.stderr
    assert folder.made == ["1"], "the others' files appear in the store with their own jobs"
    for place in (1, 3):
        assert "made by an earlier job" in folder.run(place).stdout
    assert (folder.made, folder.loaded) == (["1", "2", "4"], 1)
    (tmp_path / "later").touch()
    assert folder.run(2).returncode == 0 and folder.loaded == 2, "its input was not there before"
    for value in (1, 2, 3, 4):
        tensors = open_tensors(tmp_path / f"store/m/heads/{value}.safetensors")
        assert json.loads(tensors.metadata["recipe"])["params"] == {"value": value}
        np.testing.assert_array_equal(tensors.read("value"), np.full(3, value))


def test_what_cannot_be_made_fails_alone(tmp_path: Path) -> None:
    """One task with bad data would take the results of all others with it."""
    folder = Folder(tmp_path, [told(1), told(-1), told(2)])
    first = folder.run(0)
    assert first.returncode == 0 and "not made ahead: -1.safetensors: -1 is not to be had" in first.stdout
    assert folder.run(2).returncode == 0 and folder.made == ["1", "2"]
    failed = folder.run(1)
    assert failed.returncode == 1 and failed.stderr.splitlines()[-1] == "error: -1 is not to be had"


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    """A whole artifact would be computed once more and lie about for ever."""
    folder = Folder(tmp_path, [told(1), told(2)])
    assert folder.run(1, ahead=None).returncode == 0
    first = folder.run(0)
    assert first.returncode == 0 and "ahead of its job" not in first.stdout


def test_what_was_damaged_beside_the_store_is_made_again(tmp_path: Path) -> None:
    """Damage would pass into the store past every check."""
    folder = Folder(tmp_path, [told(1), told(2)])
    assert folder.run(0).returncode == 0
    ahead = tmp_path / ".tallmasks/ahead/2.safetensors"
    content = ahead.read_bytes()
    ahead.chmod(0o644)
    ahead.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert folder.run(1).returncode == 0 and folder.loaded == 2
    assert (tmp_path / "store/m/heads/2.safetensors").read_bytes() == content


@pytest.mark.parametrize("submitted", [False, True])
def test_on_a_cluster_every_job_makes_its_own(submitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of several bundles would do the work of all, within one job's time limit; or in an allocation of the
    user's own, where nobody else assigns devices, all jobs would share the first GPU."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    workflow = SimpleNamespace(is_main_process=not submitted, executor_plugin="local", local_exec=True, dryrun=False)
    run = Run(workflow)
    ahead = GpuJobs(run, open_plan(ROOT)).ahead_of("head", "tiny", 1)
    words = Jobs(run).words("head", {}, {}, {}, 1, "tiny", 1, ahead)
    told = json.loads(shlex.split(words)[-1])
    assert ("submitted" in told, "ahead" in told) == (submitted, not submitted)


def test_a_head_made_ahead_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head would depend on which job made it, or carry another task's name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(RUNNER))
    monkeypatch.syspath_prepend(str(RUNNER.parent / "scripts"))
    import head
    from job import Job

    save_random(tmp_path / "weights.safetensors")
    jobs = []
    for name in ("cars", "mnist"):
        task = TASKS[name]
        recipe = {"params": {**SPEC, "classes": list(task.classes[:8]), "templates": list(task.templates)}}
        outputs = {"artifact": f"store/m/heads/{name}.safetensors"}
        jobs.append({"recipe": recipe, "inputs": {"pretrained": ["weights.safetensors"]}, "outputs": outputs})
    (tmp_path / "others.json").write_text(json.dumps(jobs))
    head.run(Job.parse(json.dumps(jobs[0] | {"ahead": "others.json"})))
    ahead = (tmp_path / ".tallmasks/ahead/mnist.safetensors").read_bytes()
    head.run(Job.parse(json.dumps(jobs[1])))
    assert (tmp_path / "store/m/heads/mnist.safetensors").read_bytes() == ahead
