"""The whole chain with the real ViT-B/32, without a network: random weights, small data in the real layouts."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from conftest import shipped_params
from gpus import fake_nvml
from image_files import DIGITS, encoded, images_and_labels, write_parquet
from project import Project, lay_out
from small_clip import as_transformers
from tallmasks.models import cuda
from tallmasks.models.clip import network as clip
from tallmasks.store.tensor_files import open_tensors
from tallmasks.tasks.vision import TASKS

pytestmark = pytest.mark.xdist_group("clip")  # a group starts early
ARCHITECTURE = "ViT-B-32-quickgelu"
TWO = ["mnist", "eurosat"]
THREE = [*TWO, "svhn"]
METHODS = ["zeroshot", "task_arithmetic", "consensus_task_arithmetic", "fine_tuned", "tall_mask_task_arithmetic"]
COUNTS = {"train": 24, "test": 2}
LABEL = 3  # of every image, so that a few steps from random weights are enough to get them right


def as_parquet(folder: Path, task: str) -> None:
    """The files of a dataset's repository on the hub."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        images = [encoded(image, "PNG") for image in images_and_labels(task, count, seed)[0]]
        path = folder / TASKS[task].source.files[split].replace("*", "00000-of-00001")
        write_parquet(path, [{"bytes": image, "path": None} for image in images], [LABEL] * count, DIGITS)


def as_folders(folder: Path, task: str) -> None:
    """<split>/<class>/<image>."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        for row, image in enumerate(images_and_labels(task, count, seed)[0]):
            path = folder / split / TASKS[task].classes[LABEL] / f"{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(image, "PNG"))


def models_only(params: dict[str, Any], *names: str) -> None:
    """The project's own entries of these models, and no others."""
    params["models"] = {name: shipped_params()["models"][name] for name in names}
    params["build"] = list(names)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return lay_out(tmp_path / "project")


def test_from_images_to_the_table(project: Project, tmp_path: Path) -> None:
    """The first run on a machine with a network and GPUs would be the first run of this code at all."""
    as_parquet(tmp_path / "mnist", "mnist")
    as_folders(tmp_path / "eurosat", "eurosat")
    torch.manual_seed(0)
    save_file(clip.build(ARCHITECTURE).state_dict(), tmp_path / "weights.safetensors")

    def shrink(params: dict[str, Any]) -> None:
        models_only(params, "vit_b32")
        params["benchmarks"] = {"two": TWO}
        params["methods"] = METHODS
        params["grids"] = {"scaling_coefficient": [0.0, 1.0], "mask_lambda": [0.2, 0.4]}
        params["data"] = {task: {"path": str(tmp_path / task)} for task in TWO}
        model = params["models"]["vit_b32"]
        model["pretrained"] = str(tmp_path / "weights.safetensors")
        settings = {"iterations": 3, "batch_size": 4, "learning_rate": 1e-3, "warmup_iterations": 1}
        model["finetuning"].update(settings, precision="float32")
        model["evaluation"] = {"batch_size": 8, "precision": "float32"}
        for step in model["resources"].values():
            step.update(threads=1, gpu=0, mem_mb=4000)

    project.change(shrink)
    run = project.snakemake("results/vit_b32/two/table.csv")
    jobs = {"examples": 6, "head": 2, "finetune": 2, "task_vector": 2, "evaluate_task": 4, "results": 1}
    assert {rule: run.jobs[rule] for rule in jobs} == jobs
    with project.path("results/vit_b32/two/table.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert list(rows) == METHODS
    assert rows["zeroshot"]["storage_gb"] == "3.6304" and rows["fine_tuned"]["storage_gb"] == "6.4415"
    assert rows["fine_tuned"]["normalized_accuracy"] == "100.0000"
    with project.path("results/vit_b32/two/intervals.csv").open() as file:
        counted = [row for row in csv.DictReader(file) if row["split"] == "test"]
    assert {row["total"] for row in counted} == {"2"} and len(counted) == len(METHODS) * len(TWO)
    checkpoint = open_tensors(project.one("store/vit_b32/checkpoints/mnist-s0-*.safetensors"))
    assert checkpoint.shape("visual.proj") == (768, 512) and len(checkpoint.flat()) == 87_849_216
    curve = project.one("logs/vit_b32/checkpoint/mnist-s0-*.loss.csv").read_text().splitlines()
    assert curve[0] == "step,learning_rate,loss" and len(curve) == 4
    assert not list(project.path(".tallmasks").glob("training/*")), "no half-finished training is left"
    assert "Nothing to be done" in project.snakemake("results/vit_b32/two/table.csv").output


@pytest.mark.parametrize("model", ["vit_b32", "vit_b16", pytest.param("vit_l14", marks=pytest.mark.short)])
def test_everything_is_planned_without_touching_anything(project: Project, tmp_path: Path, model: str) -> None:
    """Nobody could see what a run on 20 tasks will do before gigabytes are downloaded."""

    def real(params: dict[str, Any]) -> None:
        models_only(params, "vit_b32", "vit_b16", "vit_l14")
        params |= {key: shipped_params()[key] for key in ("benchmarks", "methods", "grids")}

    project.change(real)
    planned = Project(project.root, offline(tmp_path)).dry_run(f"results/{model}/20tasks/table.csv").planned
    expected = {"pretrained": 1, "examples": 60, "head": 20, "finetune": 20, "task_vector": 20, "results": 1}
    assert {rule: planned[rule] for rule in expected} == expected
    assert not (tmp_path / "hub").exists()


def offline(tmp_path: Path) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}


@pytest.mark.short
def test_a_run_without_a_network_stops_at_once(project: Project, tmp_path: Path) -> None:
    """Jobs would fail one by one over hours, each with a traceback of its own."""

    def real(params: dict[str, Any]) -> None:
        models_only(params, "vit_b32")
        params["benchmarks"] = {"three": THREE}

    project.change(real)
    project.change(lambda params: [step.update(gpu=0) for step in params["models"]["vit_b32"]["resources"].values()])
    run = Project(project.root, offline(tmp_path)).snakemake("results/vit_b32/three/table.csv", fails=True)
    named = re.findall(r"huggingface\.co/\S+", run.output)
    assert sorted(named) == sorted(
        [
            "huggingface.co/datasets/tanganke/eurosat",
            "huggingface.co/datasets/ufldl-stanford/svhn",
            "huggingface.co/datasets/ylecun/mnist",
            "huggingface.co/timm/vit_base_patch32_clip_224.openai/open_clip_model.safetensors",
        ]
    )
    assert not run.jobs and "Traceback" not in run.output
    assert "data.mnist.path in params.yaml" in run.output and "hf download" in run.output


@pytest.mark.short
@pytest.mark.skipif(cuda.driver() is not None, reason="asks what happens without a driver")
def test_a_run_without_a_usable_gpu_stops_at_once(project: Project, tmp_path: Path) -> None:
    """Gigabytes would be downloaded and decoded for hours before the first job said that it has no GPU; and where
    there are some, jobs that wait for one would hold the cores that decoding needs."""
    project.change(lambda params: (models_only(params, "vit_b32"), params.update(benchmarks={"three": THREE})))
    paths = os.pathsep.join([str(project.path("src")), str(fake_nvml(tmp_path / "tools"))])
    four = Project(project.root, offline(tmp_path) | {"PYTHONPATH": paths})
    run = four.snakemake("results/vit_b32/three/table.csv", fails=True)
    assert re.search(r"Provided resources: gpu\b.*\b4\b", run.output), "as many at once as there are"
    assert not run.jobs and "Traceback" not in run.output and "huggingface.co" not in run.output
    (said,) = (line for line in run.output.splitlines() if "nothing was started, since jobs are to" in line)
    assert "no NVIDIA driver found" in said and "gpu: 0" in said
    none = four.run("snakemake", "-j2", "--resources", "gpu=0", "--", "results/vit_b32/three/table.csv", fails=True)
    assert "--resources gpu=0 leaves none" in none.output and not none.jobs


@pytest.mark.parametrize("source", ["published", "fusionbench"])
def test_imported_checkpoints_take_the_place_of_fine_tuning(project: Project, tmp_path: Path, source: str) -> None:
    """Whoever has the authors' files would have to fine-tune all the same."""
    settings = {"source": source, "path": str(tmp_path)}
    files = {
        "published": "single_task/ViT-B-32/MNISTVal/nonlinear_finetuned.pt",
        "fusionbench": "tanganke/clip-vit-base-patch32_mnist/model.safetensors",
    }
    path = tmp_path / files[source]
    path.parent.mkdir(parents=True)
    network = clip.build(ARCHITECTURE)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    state = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("transformer.")}
    changed = {name: tensor + 1e-3 * name.startswith("visual.") for name, tensor in state.items()}
    if source == "published":
        torch.save({f"model.{name}": tensor for name, tensor in changed.items()}, path)
    else:
        save_file(as_transformers(changed), path)

    def real(params: dict[str, Any]) -> None:
        models_only(params, "vit_b32")
        params["benchmarks"] = {"one": ["mnist"]}
        params["models"]["vit_b32"].update(pretrained=str(tmp_path / "weights.safetensors"), checkpoints=settings)

    project.change(real)
    planned = project.dry_run("results/vit_b32/one/table.csv").planned
    assert planned["import_checkpoint"] == 1 and not planned["finetune"]
    name = next(iter(re.findall(r"store/vit_b32/checkpoints/imported-mnist-\w+\.safetensors", planned_files(project))))
    project.snakemake(name)
    tensors = open_tensors(project.path(name))
    assert len(tensors.flat()) == 87_849_216
    assert json.loads(tensors.metadata["origin"]) == {"source": source, "file": path.name}
    expected = changed if source == "published" else changed | {"visual.proj": state["visual.proj"]}
    for tensor in ("visual.conv1.weight", "visual.transformer.resblocks.11.attn.in_proj_weight", "visual.proj"):
        torch.testing.assert_close(torch.from_numpy(tensors.read(tensor)), expected[tensor], atol=0, rtol=0)


def planned_files(project: Project) -> str:
    return project.run("snakemake", "-n", "--quiet", "host", "--", "results/vit_b32/one/table.csv").output
