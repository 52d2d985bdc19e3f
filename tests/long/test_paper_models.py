"""The paper's models before their first job: what is planned, and what ends a run on a machine that lacks something."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import shipped_params
from gpus import fake_nvml
from project import Project, lay_out

pytestmark = pytest.mark.xdist_group("clip")  # a group starts early


def one_model(params: dict[str, Any]) -> None:
    """The project's own entry of this model alone, and three tasks."""
    params["models"] = {"vit_b32": shipped_params()["models"]["vit_b32"]}
    params |= {"build": ["vit_b32"], "benchmarks": {"three": ["mnist", "eurosat", "svhn"]}}


def offline(tmp_path: Path) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return lay_out(tmp_path / "project")


@pytest.mark.parametrize("model", ["vit_b32", "vit_b16", pytest.param("vit_l14", marks=pytest.mark.short)])
def test_everything_is_planned_without_touching_anything(project: Project, tmp_path: Path, model: str) -> None:
    """Nobody could see what a run on 20 tasks will do before gigabytes are downloaded."""
    keys = ("models", "benchmarks", "methods", "grids")
    project.change(lambda params: params.update({key: shipped_params()[key] for key in keys}))
    planned = Project(project.root, offline(tmp_path)).dry_run(f"results/{model}/20tasks/table.csv").planned
    expected = {"pretrained": 1, "examples": 60, "head": 20, "finetune": 20, "task_vector": 20, "tables": 1}
    assert {rule: planned[rule] for rule in expected} == expected
    assert not (tmp_path / "hub").exists()


@pytest.mark.short
def test_a_run_without_a_network_stops_at_once(project: Project, tmp_path: Path) -> None:
    """Jobs would fail one by one over hours, each with a traceback of its own."""
    project.change(one_model)
    project.change(lambda params: [step.update(gpu=0) for step in params["models"]["vit_b32"]["resources"].values()])
    run = Project(project.root, offline(tmp_path)).snakemake("results/vit_b32/three/table.csv", fails=True)
    named = set(re.findall(r"huggingface\.co/(\S+)", run.output))
    data = {f"datasets/{name}" for name in ("tanganke/eurosat", "ufldl-stanford/svhn", "ylecun/mnist")}
    assert named == data | {"timm/vit_base_patch32_clip_224.openai/open_clip_model.safetensors"}
    assert not run.jobs and "Traceback" not in run.output


@pytest.mark.short
@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what happens without a GPU")
def test_a_run_without_a_usable_gpu_stops_at_once(project: Project, tmp_path: Path) -> None:
    """Gigabytes would be downloaded and decoded for hours before the first job said that it has no GPU."""
    project.change(one_model)
    paths = os.pathsep.join([str(project.path("src")), str(fake_nvml(tmp_path / "tools"))])
    four = Project(project.root, offline(tmp_path) | {"PYTHONPATH": paths})
    run = four.snakemake("results/vit_b32/three/table.csv", fails=True)
    assert not run.jobs and "Traceback" not in run.output and "huggingface.co" not in run.output
    (said,) = (line for line in run.output.splitlines() if "nothing was started, since jobs are to" in line)
    assert "torch has no GPU" in said and "gpu: 0" in said
    none = four.run("snakemake", "-j2", "--resources", "gpu=0", "--", "results/vit_b32/three/table.csv", fails=True)
    assert "--resources gpu=0 leaves none" in none.output and not none.jobs
