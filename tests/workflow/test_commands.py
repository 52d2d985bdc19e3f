"""Commands on a project that the real engines built; metrics and plots, as DVC's users know them."""

import fcntl
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from conftest import ROOT, shipped_params
from project import Project
from reproduction.artifacts.labels import as_metadata, digest_of
from tallmasks.cli.main import main
from tallmasks.io.tensor_files import write_tensors


def test_gc_removes_what_no_recipe_names_and_nothing_else(project: Project, tmp_path: Path) -> None:
    """Old artifacts would fill the disk, or a clean-up would take a user's own files with them."""
    before = project.sha256("store", "results", "models")
    outside = tmp_path / "outside-0123456789ab.safetensors"
    outside.write_text("not the project's")
    checkpoints = project.path("store/tiny/checkpoints")
    project.path("store/tiny/notes.txt").write_text("mine")
    (checkpoints / "mine-0123456789ab.safetensors").write_text("has the name of an artifact, and no recipe")
    (checkpoints / "link-0123456789ab.safetensors").symlink_to(outside)
    files = {str(path.relative_to(project.root)) for path in project.path("store").rglob("*") if path.is_file()}
    leftover = checkpoints / ".mnist-s0-0123456789ab.safetensors.0123456789ab.tmp"
    leftover.write_text("half")
    project.change(lambda params: params["grids"].update(mask_lambda=[0.2]))

    listed = project.tallmasks("gc").output
    assert "nothing removed" in listed and leftover.exists()
    project.tallmasks("gc", "--yes")

    after = project.sha256("store", "results", "models")
    gone = {path.removeprefix("store/tiny/derived/").partition("-")[0] for path in before.keys() - after.keys()}
    evaluations = {"evaluate/tall_mask_task_arithmetic", "evaluate/consensus_task_arithmetic"}
    assert gone == {"mask/sum", "consensus/sum"} | evaluations
    assert after.keys() - before.keys() == files - before.keys()
    assert outside.exists() and not leftover.exists()
    assert all(str(path) in listed for path in before.keys() - after.keys())


def test_gc_leaves_a_running_snakemake_alone(project: Project) -> None:
    """The file that a job is writing would be taken for a left-over."""
    with project.path(".tallmasks/writer.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "snakemake" in project.tallmasks("gc", "--yes", fails=True).output


def test_gc_keeps_the_files_of_a_model_whose_weights_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their names are not known, so gc would remove hours of fine-tuning; or refuse in a clone without real images."""
    params = shipped_params()
    params["models"] = {name: params["models"][name] for name in ("tiny", "tiny_t5")}
    params["benchmarks"] = {"two": ["svhn", "mnist"], "texts": ["qasc", "quartz"]}
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(yaml.safe_dump(params))
    Path("models").mkdir()
    Path("models/tiny_t5.safetensors").symlink_to(ROOT / "models/tiny_t5.safetensors")
    recipe = {"kind": "finetune", "version": 1, "params": {}, "inputs": {}, "sources": {}}
    files = [Path(f"store/{name}/checkpoints/finetune/a-{digest_of(recipe)}.safetensors") for name in params["models"]]
    for file in files:
        file.parent.mkdir(parents=True)
        write_tensors(file, {"a": np.zeros(2, np.float32)}, as_metadata(recipe))
    assert main(["gc", "--yes"]) == 0
    assert [file.exists() for file in files] == [True, False]
    assert "needs in store/tiny: models/tiny.safetensors: no such file" in " ".join(capsys.readouterr().err.split())


def test_why_says_what_is_new(project: Project) -> None:
    """A user would have to guess why a night of fine-tuning starts again."""
    table = "results/tiny/three/table.csv"
    assert "would not be rebuilt" in project.tallmasks("why", table).output
    project.change(lambda params: params["models"]["tiny"]["finetuning"].update(learning_rate=0.5))
    said = project.tallmasks("why", table).output
    assert "3 finetune" in said
    assert re.search(r"params\.finetuning\.learning_rate: was .*, is now 0\.5", said)
    project.git("checkout", "-q", "params.yaml")
    project.benchmark("new", ["mnist", "cars"])
    said = project.tallmasks("why", "results/tiny/new/table.csv").output
    assert "1 finetune" in said and "head cars" in said and "mnist-s0" not in said

    path = project.path(table)
    path.write_text(path.read_text() + "\n")
    assert table in project.tallmasks("why", table).output


def test_metrics_and_plots_show_the_tables(project: Project) -> None:
    """A DVC user would find empty `dvc metrics` and `dvc plots`."""
    shown = json.loads(project.dvc("metrics", "show", "--json").output)[""]["data"]
    values = shown["results/tiny/two/metrics.json"]["data"]
    table = pd.read_csv(project.path("results/tiny/two/table.csv")).set_index("method")
    best = table.drop("fine_tuned").groupby("section")["normalized_accuracy"].max()
    assert values == {
        "accuracy": table.loc[["zeroshot", "fine_tuned"], "accuracy"].to_dict(),
        "normalized_accuracy": {
            "task_arithmetic": table.loc["task_arithmetic", "normalized_accuracy"],
            "best_merging": best["merging"],
            "best_compression": best["compression"],
        },
    }
    project.change(lambda params: params.update(methods=["zeroshot", "tall_mask_task_arithmetic"]))
    assert project.snakemake("results/tiny/two/table.csv").jobs.keys() == {"tables"}
    changed = json.loads(project.dvc("metrics", "diff", "--json").output)["results/tiny/two/metrics.json"]
    assert "normalized_accuracy.task_arithmetic" in changed
    project.dvc("plots", "show")
    assert "task_arithmetic" in project.path("dvc_plots/index.html").read_text()
    assert not project.git("status", "--porcelain", "dvc_plots").output


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`tallmasks methods | head` would end in a traceback."""
    command = [sys.executable, "-m", "tallmasks.cli.main", "methods"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode != 1


def grid(*values: float) -> str:
    return f"grids.scaling_coefficient=[{','.join(map(str, values))}]"


@pytest.mark.long
def test_experiments_cost_only_what_changed(project: Project) -> None:
    """An experiment in a folder of its own, or from the queue, would start with fine-tuning."""
    costs = {"evaluate", "tables"}
    assert project.dvc("exp", "run", "-n", "here", "-S", grid(0.0, 1.0)).jobs.keys() == costs
    assert project.dvc("exp", "run", "--temp", "-n", "aside", "-S", grid(0.0, 0.4)).jobs.keys() == costs
    project.dvc("exp", "run", "--queue", "-n", "queued", "-S", grid(0.0, 0.8))
    assert project.dvc("exp", "run", "--run-all").jobs.keys() == costs
    table = json.loads(project.dvc("exp", "show", "--json").output)
    names = {run["name"] for entry in table for run in entry["experiments"] or [] for run in run["revs"]}
    assert names == {"here", "aside", "queued"}
    assert project.path("params.yaml").read_text().count("0.8") == 0, "the queue works elsewhere"
