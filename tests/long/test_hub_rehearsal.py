"""The first run on a machine with a network, rehearsed on a hub on the loopback; nothing of our own is replaced.

Each data set lies there as its real repository lays it out, with a few rows; weights have the real tensor names.
"""

import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors

import image_files
import small_classifier
import small_t5
import text_data
from conftest import ROOT, shipped_params
from loopback_hub import COMMIT, LoopbackHub, Repository, serving
from models_made import make_small
from project import Project, lay_out
from reproduction.models.clip import network as clip
from reproduction.tasks.text import TASKS as TEXT
from reproduction.tasks.vision import TASKS as VISION
from tallmasks.io.tensor_files import open_tensors

pytestmark = pytest.mark.xdist_group("hub")
IMAGES = {"train": 40, "test": 8}
TEXTS = 16
"""Rows of validation and test data. Each has one prompt and, as a rule, two choices, in turn the right ones: whatever a
random network answers, some of it is right."""
METHODS = ["zeroshot", "task_arithmetic", "consensus_task_arithmetic", "fine_tuned", "tall_mask_task_arithmetic"]
CLIP: dict[str, Any] = {
    "embed_dim": 512,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 224, "patch_size": 32, "width": 768, "layers": 1, "head_width": 64},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1},
}
"""ViT-B/32's image encoder with 1 of its 12 layers; beside it, since no task trains it, a small text encoder."""
T5: dict[str, Any] = {"name": "t5-large-lm-adapt", "num_layers": 1, "num_decoder_layers": 1, "vocab_size": 192}
"""T5-large with 1 of its 24 layers, and a vocabulary for the stand-in's pieces and T5's sentinels."""
Repositories = dict[tuple[str, str], Repository]


@pytest.fixture(scope="module")
def own_models(tmp_path_factory: pytest.TempPathFactory) -> Repositories:
    """A base, and models that add 1 and 2 to its weights."""
    root = tmp_path_factory.mktemp("own")
    make_small(root)
    return {("models", f"org/{name}"): Repository(root / name) for name in ("base", "cars", "dtd")}


@pytest.fixture(scope="module")
def stand_ins(own_models: Repositories, tmp_path_factory: pytest.TempPathFactory) -> Repositories:
    """Every data set and the weights too, under the names and at the commits that the project asks for."""
    root = tmp_path_factory.mktemp("hub")
    repositories = dict(own_models)
    for name, task in VISION.items():
        image_files.write_repository(root / name, name, IMAGES, classes=1)  # which two steps learn
        repositories["datasets", task.source.hub] = Repository(root / name, task.source.revision or COMMIT)
    for name, task in TEXT.items():
        if not task.ask:
            rows = {"train": task.held_out + 6, "test": TEXTS}
            folder, revision = root / task.source.hub.replace("/", "+"), task.source.revision or COMMIT
            text_data.write_repository(folder, name, rows, choices=2)
            at = {"branch": revision} if "/" in revision else {"commit": revision}
            repositories["datasets", task.source.hub] = Repository(folder, **at)
    for model in ("vit_b32", "t5_large"):
        (root / model).mkdir()
        pretrained = shipped_params()["models"][model]["pretrained"]
        repositories["models", pretrained["hub"]] = Repository(root / model, pretrained["revision"])
    torch.manual_seed(0)
    save_tensors(clip.build(CLIP).state_dict(), root / "vit_b32" / "open_clip_model.safetensors")
    save_file(small_t5.random_state(architecture=T5), root / "t5_large" / "model.safetensors")
    (root / "t5_large" / "spiece.model").write_bytes(small_t5.spiece_model())
    return repositories


@pytest.fixture
def hub(stand_ins: Repositories) -> Iterator[LoopbackHub]:
    with serving() as server:
        server.repositories = dict(stand_ins)
        yield server


@pytest.fixture
def small_hub(own_models: Repositories) -> Iterator[LoopbackHub]:
    with serving() as server:
        server.repositories = dict(own_models)
        yield server


@pytest.fixture
def project(hub: LoopbackHub, tmp_path: Path) -> Project:
    """The project with an empty cache and this hub; its jobs are forks of a warm Python of its own, which has both."""
    return Project(lay_out(tmp_path / "project").root, hub.environment(tmp_path / "home") | {"TALLMASKS_WARM": ""})


def small_model(params: dict[str, Any], model: str, benchmarks: dict[str, list[str]], **settings: Any) -> None:
    """The project's own entry of a model with a small network on a CPU, and two steps of fine-tuning."""
    entry = shipped_params()["models"][model]
    params.update(models={model: entry}, build=[model], benchmarks=benchmarks, methods=METHODS, seeds=[0])
    params["grids"] = {"scaling_coefficient": [0.0, 1.0], "mask_lambda": [0.2, 0.4]}
    entry.update(evaluation={"batch_size": 8, "precision": "float32"}, **settings)
    entry["finetuning"].update(iterations=2, batch_size=4, precision="float32", learning_rate=1e-3)
    if "warmup_iterations" in entry["finetuning"]:
        entry["finetuning"]["warmup_iterations"] = 1
    entry["resources"].pop("jobs_per_gpu", None)
    for step in entry["resources"].values():
        step.update(threads=1, gpu=0, mem_mb=2000)


def examples_of(project: Project, target: str) -> list[str]:
    """The files of examples that a result is made from."""
    planned = project.run("snakemake", "-n", "--quiet", "host", "--", target).output
    return sorted(set(re.findall(r"store/data/\S+?\.safetensors", planned)))


def rehearse(project: Project, model: str, small: str, large: str, tasks: Mapping[str, Any], *more: str) -> None:
    """Make a table of a benchmark, and all data of a larger one, each from where it should be."""
    files = examples_of(project, f"results/{model}/{large}/table.csv")
    assert len(files) == 3 * len(tasks)
    run = project.snakemake(f"results/{model}/{small}/table.csv", *more, *files)
    assert run.jobs["examples"] == len(files)
    benchmarks = shipped_params()["benchmarks"] | shipped_params()["models"][model].get("benchmarks", {})
    assert run.jobs["finetune"] == len(benchmarks[small])
    with project.path(f"results/{model}/{small}/table.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == METHODS
    for name, task in tasks.items():
        if task.source.hub:
            examples = open_tensors(project.one(f"store/data/*/examples/{name}-test-*.safetensors"))
            origin = json.loads(examples.metadata["origin"])
            assert origin["source"] == f"huggingface.co/datasets/{task.source.hub}"
            revision = task.source.revision
            assert origin["revision"] == (COMMIT if revision is None or "/" in revision else revision)


def test_the_20_image_data_sets_and_a_table(hub: LoopbackHub, project: Project) -> None:
    """A file name, column or type that is another on the hub would stop the run after hours of downloads."""
    pretrained = shipped_params()["models"]["vit_b32"]["pretrained"]
    weights = hub.repositories["models", pretrained["hub"]].folder / pretrained["file"]
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()

    def shrink(params: dict[str, Any]) -> None:
        benchmarks = {name: shipped_params()["benchmarks"][name] for name in ("8tasks", "20tasks")}
        small_model(params, "vit_b32", benchmarks, architecture=CLIP, pretrained=pretrained | {"sha256": sha256})
        params["data"] = {"emnist": {"revision": COMMIT}}  # without one only the real number of images will do

    project.change(shrink)
    rehearse(project, "vit_b32", "8tasks", "20tasks", VISION, "results/vit_b32/20tasks/zeroshot.csv")


@pytest.mark.parametrize("model", ["t5_large", "t5_large_ia3"])
def test_the_11_text_data_sets_and_a_table(
    model: str, stand_ins: Repositories, project: Project, tmp_path: Path
) -> None:
    """The same for T5."""

    def shrink(params: dict[str, Any]) -> None:
        benchmarks = {name: shipped_params()["benchmarks"][name] for name in ("7nlp", "11nlp")}
        small_model(params, model, benchmarks, architecture=T5)
        entry = params["models"][model]
        entry |= {"templates": [0], "examples": {"train": 6, "validation": TEXTS, "test": TEXTS}}
        entry["finetuning"].update(validate_every=1)
        entry["resources"]["finetuning"].update(micro_batch_size=4)
        entry["scoring"].update(max_input_tokens=32, max_new_tokens=4)
        params["data"] = {"story_cloze": {"path": str(stories)}}

    stories = tmp_path / "stories"
    text_data.write_repository(stories, "story_cloze", {"train": TEXT["story_cloze"].held_out + 6, "test": TEXTS})
    project.change(shrink)
    rehearse(project, model, "7nlp", "11nlp", {name: task for name, task in TEXT.items() if not task.texts})


def test_the_20_classification_data_sets_and_a_table(hub: LoopbackHub, project: Project, tmp_path: Path) -> None:
    """The same for text classifiers."""
    pretrained = shipped_params()["models"]["minilm_hub"]["pretrained"]
    folder = small_classifier.save_folder(tmp_path / "encoder")
    hub.repositories["models", pretrained["hub"]] = Repository(folder, pretrained["revision"])

    def shrink(params: dict[str, Any]) -> None:
        benchmarks = shipped_params()["models"]["minilm_hub"]["benchmarks"]
        small_model(params, "minilm_hub", benchmarks, architecture=small_classifier.ARCHITECTURE)
        entry = params["models"]["minilm_hub"]
        entry["pretrained"] = {key: pretrained[key] for key in ("hub", "file", "revision")}
        entry |= {"examples": {"train": 6, "validation": TEXTS, "test": TEXTS}}
        entry["scoring"].update(max_input_tokens=12)

    project.change(shrink)
    rehearse(project, "minilm_hub", "8texts", "20texts", {name: task for name, task in TEXT.items() if task.texts})


def test_doctor_names_what_the_hub_refuses(hub: LoopbackHub, project: Project) -> None:
    """Terms to accept, or a repository that moved, would come up job by job during the run."""
    project.change(lambda params: small_model(params, "vit_b32", {"three": ["mnist", "kmnist", "cars"]}))
    ready = project.tallmasks("doctor", "vit_b32").output
    assert "vit_b32: ready" in ready and "4 repositories to download" in ready
    hub.gated.add(VISION["mnist"].source.hub)
    del hub.repositories["datasets", VISION["kmnist"].source.hub]
    problems = re.findall(r"^    - (.*)$", project.tallmasks("doctor", "vit_b32", fails=True).output, re.M)
    assert len(problems) == 2
    assert any(VISION["mnist"].source.hub in line and "Accept its terms" in line for line in problems)
    assert any(VISION["kmnist"].source.hub in line for line in problems)


def command(hub: LoopbackHub, folder: Path, *arguments: str) -> str:
    """What a command of the project's prints in a folder, with this hub and the cache `home` there."""
    environment = os.environ | hub.environment(folder / "home") | {"PYTHONPATH": str(ROOT / "src")}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, text=True, **pipes)
    assert done.returncode == 0, done.stdout
    return done.stdout


TALLMASKS = ("-m", "tallmasks.cli.main")
TASKS = ("--task", f"cars=org/cars@{COMMIT}", "--task", "dtd=org/dtd")


@pytest.mark.short
def test_models_and_bundles_by_name_and_revision(small_hub: LoopbackHub, tmp_path: Path) -> None:
    """Only models in local folders could be merged, and only bundles there loaded."""
    merge = (*TALLMASKS, "merge", "--base", f"org/base@{COMMIT}", *TASKS, "--method", "task_arithmetic")
    command(small_hub, tmp_path, *merge, "--scaling-coefficient", "0.5", "-o", "merged")
    base = np.arange(64, dtype=np.float32).reshape(8, 8)
    (weights,) = (tmp_path / "merged").glob("*.safetensors")
    np.testing.assert_array_equal(load_file(weights)["w.weight"], base + np.float32(0.5 * (1 + 2)))
    card = yaml.safe_load((tmp_path / "merged" / "README.md").read_text().split("---\n")[1])
    assert card["base_model"] == ["org/base", "org/cars", "org/dtd"] and card["base_model_relation"] == "merge"

    command(small_hub, tmp_path, *TALLMASKS, "compress", "--base", f"org/base@{COMMIT}", *TASKS, "-o", "bundle")
    small_hub.repositories["models", "org/bundle"] = Repository(tmp_path / "bundle")
    load = "import tallmasks; print(tallmasks.load_bundle({!r}).arrays('dtd')['w.weight'].tobytes().hex())"
    here, there = (command(small_hub, tmp_path, "-c", load.format(name)) for name in ("bundle", f"org/bundle@{COMMIT}"))
    assert there.splitlines()[-1] == here.splitlines()[-1]
    assert "bundle.json" in small_hub.downloads
