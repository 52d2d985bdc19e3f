"""A model family and a task catalogue from outside the package, through the real Snakemake to a table."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from project import ROOT, lay_out
from tallmasks.io.tensor_files import write_tensors

OWN: dict[str, Any] = {
    "family": "toys.numbers_toy", "tasks": "toys.numbers_toy", "architecture": "linear",
    "pretrained": "models/own.safetensors",
    "finetuning": {
        "iterations": 600, "batch_size": 50, "learning_rate": 0.1, "schedule": "constant", "weight_decay": 0.0,
        "epsilon": 1.0e-8, "validate_every": 10, "patience": 4,
    },
    "evaluation": {"batch_size": 100, "precision": "float32"},
    "resources": {
        step: {"threads": 1, "gpu": 0, "mem_mb": 500, "runtime": 5}
        for step in ("cpu", "one_task", "evaluation", "finetuning")
    },
}  # fmt: skip


@pytest.mark.long
def test_a_family_and_a_catalogue_of_ones_own_give_a_table(tmp_path: Path) -> None:
    """Another kind of model would need changes all over the package."""
    project = lay_out(tmp_path / "project")
    shutil.copytree(ROOT / "tests/helpers/toys", project.path("toys"))
    project.change(lambda params: params["models"].update(own=OWN))
    project.benchmark("own", ["north", "east", "south"])
    draw = np.random.default_rng(0)
    weights = {"bias": np.zeros(4, np.float32), "weight": draw.normal(0, 0.1, (4, 8)).astype(np.float32)}
    write_tensors(project.path("models", "own.safetensors"), weights, {})
    project.change(lambda params: params.update(methods="paper"))
    run = project.snakemake("results/own/own/table.csv")
    assert "head" not in run.jobs, "a stage of CLIP's"
    assert {"examples", "finetune"} <= run.jobs.keys()
    for path in project.root.glob("logs/own/finetune/*.csv"):
        curve = pd.read_csv(path)
        assert curve["validation"].count() == len(curve) / 10 < 60, "it ends early, having looked every ten steps"
    table = pd.read_csv(project.path("results/own/own/table.csv")).set_index("method")["accuracy"]
    assert table["fine_tuned"] > 85 > 60 > table["zeroshot"]
    assert table["tall_mask_task_arithmetic"] > table["task_arithmetic"]
    assert not project.dry_run("results/own/own/table.csv").planned
    with project.path("toys/numbers_toy.py").open("a") as module:
        module.write("OTHER = 1\n")
    assert {"examples", "finetune", "tables"} <= project.dry_run("results/own/own/table.csv").planned.keys()
