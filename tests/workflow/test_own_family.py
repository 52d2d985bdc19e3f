"""A model family and a task catalogue from outside the package, through the real Snakemake to a table."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from project import ROOT, Project, lay_out
from tallmasks.store.tensor_files import write_tensors

SHARED: dict[str, Any] = {
    "finetuning": {
        "iterations": 600, "batch_size": 50, "learning_rate": 0.1, "schedule": "constant", "weight_decay": 0.0,
        "epsilon": 1.0e-8, "validate_every": 10, "patience": 4,
    },
    "evaluation": {"batch_size": 100, "precision": "float32"},
    "resources": {
        step: {"threads": 1, "gpu": 0, "mem_mb": 500, "runtime": 5} for step in ("arrays", "evaluation", "finetuning")
    },
}  # fmt: skip
LLAMA = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip


def with_toy(folder: Path, family: str, tasks: str, benchmark: list[str], model: dict[str, Any]) -> Project:
    """A project whose model `own` is of a toy's family, with its tasks in the benchmark `own`."""
    laid_out = lay_out(folder)
    shutil.copytree(ROOT / "tests/helpers/toys", laid_out.path("own/toys"))
    project = Project(laid_out.root, {"PYTHONPATH": f"{laid_out.path('src')}:{laid_out.path('own')}"})
    entry = {**SHARED, "family": family, "tasks": tasks, "pretrained": "models/own.safetensors", **model}
    project.change(lambda params: params["models"].update(own=entry))
    project.change(lambda params: params["benchmarks"].update(own=benchmark))
    return project


@pytest.mark.long
def test_a_family_and_a_catalogue_of_ones_own_give_a_table(tmp_path: Path) -> None:
    """Whoever brings another kind of model would have to change the package in a dozen places."""
    project = with_toy(
        tmp_path / "project",
        "toys.numbers_toy",
        "toys.numbers_toy",
        ["north", "east", "south"],
        {"architecture": "linear"},
    )
    draw = np.random.default_rng(0)
    weights = {"bias": np.zeros(4, np.float32), "weight": draw.normal(0, 0.1, (4, 8)).astype(np.float32)}
    write_tensors(project.path("models", "own.safetensors"), weights, {})
    project.change(lambda params: params.update(methods="all"))
    run = project.snakemake("results/own/own/table.csv")
    assert "head" not in run.jobs, "a stage of CLIP's"
    assert (run.jobs["finetune"], run.jobs["examples"]) == (3, 9)
    for path in project.root.glob("logs/own/checkpoint/*.csv"):
        curve = pd.read_csv(path)
        assert curve["validation"].count() == len(curve) / 10 < 60, "it ends early, having looked every ten steps"
    table = pd.read_csv(project.path("results/own/own/table.csv")).set_index("method")["accuracy"]
    assert table["fine_tuned"] > 85 > 60 > table["zeroshot"]
    assert table["tall_mask_task_arithmetic"] > table["task_arithmetic"]
    project.replace("own/toys/numbers_toy.py", "# -- the family", "# -- the family, in which nothing changed")
    assert project.dry_run("results/own/own/table.csv").planned == {}
    project.replace("own/toys/numbers_toy.py", "draw.normal(size=", "2 * draw.normal(size=")
    planned = project.dry_run("results/own/own/table.csv").planned
    assert (planned["finetune"], planned["examples"]) == (3, 9), "of a changed generator"


@pytest.mark.long
def test_a_causal_language_model_of_ones_own_goes_through_the_whole_chain(tmp_path: Path) -> None:
    """Only T5 could have tasks of texts; or a Llama would need masks, merges and tables of its own."""
    from toys import llama_network  # it imports transformers

    finetuning = {**SHARED["finetuning"], "iterations": 150, "learning_rate": 0.003, "validate_every": 50}
    llama = {"architecture": LLAMA, "finetuning": finetuning, "scoring": {"length_normalized": True}}
    project = with_toy(
        tmp_path / "project", "toys.llama_toy", "toys.questions_toy", ["colours", "places", "meals"], llama
    )
    llama_network.write_random(LLAMA, project.path("models", "own.safetensors"))
    rows = ["zeroshot", "task_arithmetic", "fine_tuned", "tall_mask_task_arithmetic", "consensus_task_arithmetic"]
    project.change(lambda params: params.update(methods=[*rows, "fisher", "regmean", {"adamerging": {"steps": 5}}]))
    run = project.snakemake("results/own/own/table.csv")
    assert (run.jobs["finetune"], run.jobs["consensus"], run.jobs["learn"]) == (3, 1, 1)
    table = pd.read_csv(project.path("results/own/own/table.csv")).set_index("method")["accuracy"]
    assert table["fine_tuned"] > 95 and table["tall_mask_task_arithmetic"] > table["task_arithmetic"]
    assert {"fisher", "regmean", "adamerging:steps=5"} < set(table.index)
    assert (
        "Traceback"
        not in project.run(sys.executable, "-m", "tallmasks.commands.main", "doctor", "own", check=False).output
    )
