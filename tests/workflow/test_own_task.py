"""A vision task of one's own as docs/gpu.md describes it, from zero-shot accuracy to the table."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file

from image_files import DIGITS, encoded, images_and_labels, write_parquet
from project import ROOT, Project, lay_out
from reproduction.models.clip import network as clip
from reproduction.tasks.vision import TASKS

TABLE, ZEROSHOT = "results/vit_b32/mine/table.csv", "results/vit_b32/mine/zeroshot.csv"
ARCHITECTURE = {
    "embed_dim": 16,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 32, "layers": 1, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
METHODS = ["zeroshot", "task_arithmetic", "fine_tuned", "tall_mask_task_arithmetic"]


def documented() -> dict[str, Any]:
    """The block of params.yaml in docs/gpu.md."""
    text = (ROOT / "docs" / "gpu.md").read_text()
    (block,) = [found for found in re.findall(r"```yaml\n(.*?)```", text, re.S) if "vision_tasks:" in found]
    return yaml.safe_load(block)


def write_images(folder: Path, classes: list[str]) -> None:
    """Writes <split>/<class>/<image>; each class has its own colour."""
    for split, count in (("train", 20), ("test", 5)):
        for label, name in enumerate(classes):
            for row in range(count):
                pixels = np.full((40, 50, 3), 40 * row % 200, np.uint8)
                pixels[..., label] = 250
                path = folder / split / name.title().replace(" ", "_") / f"{row}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)


def write_mnist(folder: Path) -> None:
    for seed, (split, count) in enumerate({"train": 40, "test": 10}.items()):
        images, labels = images_and_labels("mnist", count, seed)[0], [3] * count  # soon learned
        path = folder / TASKS["mnist"].source.files[split].replace("*", "00000-of-00001")
        write_parquet(path, [{"bytes": encoded(image, "PNG"), "path": None} for image in images], labels, DIGITS)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The model is called vit_b32, and is so small, with random weights, that all of it takes seconds."""
    project = lay_out(tmp_path / "project")
    example = documented()
    (task,) = example["vision_tasks"].values()
    task["path"] = str(tmp_path / "own")
    write_images(tmp_path / "own", task["classes"])
    write_mnist(tmp_path / "mnist")
    torch.manual_seed(0)
    save_file(clip.build(ARCHITECTURE).state_dict(), tmp_path / "weights.safetensors")

    def edit(params: dict[str, Any]) -> None:
        params |= {"methods": METHODS, "benchmarks": example["benchmarks"], "vision_tasks": example["vision_tasks"]}
        params["data"] = {"mnist": {"path": str(tmp_path / "mnist")}}
        tiny = {key: value for key, value in params["models"]["tiny"].items() if key not in ("pretraining", "examples")}
        tiny |= {"tasks": "vision", "architecture": ARCHITECTURE, "pretrained": str(tmp_path / "weights.safetensors")}
        tiny["preprocess"] = {"size": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
        tiny["finetuning"] |= {"augmentation": "crop", "iterations": 30, "learning_rate": 3.0e-3}
        params["models"] = {"vit_b32": tiny}
        params["build"] = ["vit_b32"]

    project.change(edit)
    return project


@pytest.mark.long
def test_from_zero_shot_to_the_table(project: Project, tmp_path: Path) -> None:
    """Somebody could not use images of their own, or would see only after fine-tuning that they are read wrong."""
    (own,) = documented()["vision_tasks"]
    said = project.tallmasks("why", ZEROSHOT).output
    assert "2 evaluate_task" in said and "finetune" not in said
    run = project.snakemake(ZEROSHOT)
    assert run.jobs.keys() == {"examples", "head", "evaluate_task", "zeroshot"}, "nothing is fine-tuned"
    found = pd.read_csv(project.path(ZEROSHOT)).set_index("task")
    assert found.index.tolist() == documented()["benchmarks"]["mine"]
    assert found.loc[own, "total"] == 5 * len(documented()["vision_tasks"][own]["classes"])
    assert found["accuracy_published"].isna().all(), "nothing was published of this network, whatever it is called"
    provenance = json.loads(project.path("results/vit_b32/mine/zeroshot.provenance.json").read_text())
    assert list(provenance["sha256"]) == ["zeroshot.csv"] and provenance["origins"][own]["test"]["images"] == 15

    jobs = project.snakemake(TABLE).jobs
    assert jobs["finetune"] == 2 and jobs["head"] == 0 and jobs["zeroshot"] == 0
    assert not project.dry_run(ZEROSHOT).planned, "the table leaves it alone"
    assert set(pd.read_csv(project.path("results/vit_b32/mine/per_task.csv"))["task"]) == {own, "mnist"}
    assert not project.path("results/vit_b32/mine/vs_paper_per_task.csv").exists()

    imported = tmp_path / "imported"
    imported.mkdir()
    for task in (own, "mnist"):
        path = project.one(f"store/vit_b32/checkpoints/finetune/{task}-s0-*.safetensors")
        (imported / f"{task}.safetensors").write_bytes(path.read_bytes())
    project.change(lambda params: params["models"]["vit_b32"].update(checkpoints=str(imported)))
    assert project.snakemake(TABLE).jobs["import_checkpoint"] == 2
    (note,) = json.loads(project.path("results/vit_b32/mine/provenance.json").read_text())["notes"]
    assert "validation images" in note and own in note
