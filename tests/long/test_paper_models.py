"""The paper's models before their first job: what is planned, and what ends a run on a machine that lacks something."""

import re
from pathlib import Path
from typing import Any

import pytest

from conftest import shipped_params
from project import Project, lay_out

pytestmark = pytest.mark.xdist_group("clip")  # a group starts early

STEPS = ("cpu", "one_task", "evaluation", "finetuning")


def one_model(params: dict[str, Any]) -> None:
    """The project's own entry of this model alone, and three tasks."""
    params["models"] = {"vit_b32": shipped_params()["models"]["vit_b32"]}
    params |= {"build": ["vit_b32"], "benchmarks": {"three": ["mnist", "eurosat", "svhn"]}}


def offline(tmp_path: Path) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return lay_out(tmp_path / "project")


@pytest.mark.short
def test_a_run_without_a_network_stops_at_once(project: Project, tmp_path: Path) -> None:
    """Jobs would fail one by one over hours, each with a traceback of its own."""
    project.change(one_model)
    on_a_cpu = {name: {"threads": 1, "gpu": 0, "mem_mb": 1000, "runtime": 1} for name in STEPS}
    project.change(lambda params: params["models"]["vit_b32"].update(resources=on_a_cpu))
    run = Project(project.root, offline(tmp_path)).snakemake("results/vit_b32/three/table.csv", fails=True)
    named = set(re.findall(r"huggingface\.co/(\S+)", run.output))
    data = {f"datasets/{name}" for name in ("tanganke/eurosat", "ufldl-stanford/svhn", "ylecun/mnist")}
    assert named == data | {"timm/vit_base_patch32_clip_224.openai/open_clip_model.safetensors"}
    assert not run.jobs and "Traceback" not in run.output
