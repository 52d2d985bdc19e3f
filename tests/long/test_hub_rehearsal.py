"""The first run on a machine with a network, rehearsed on a hub on the loopback; nothing of our own is replaced.

Each data set lies there as its real repository lays it out, with a few rows; weights have the real tensor names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors

import image_files
import small_t5
import text_data
from conftest import ROOT, shipped_params
from loopback_hub import COMMIT, LoopbackHub, Repository, serving
from tallmasks.models.clip import network as clip
from tallmasks.tasks.text import TASKS as TEXT
from tallmasks.tasks.vision import TASKS as VISION

pytestmark = pytest.mark.xdist_group("hub")
SHORT = COMMIT[:7]
IMAGES = {"train": 40, "test": 8}
METHODS = ["zeroshot", "task_arithmetic", "consensus_task_arithmetic", "fine_tuned", "tall_mask_task_arithmetic"]
CLIP: dict[str, Any] = {
    "embed_dim": 32,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
"""ViT-B/32's tensors by name, in small."""


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Repository]:
    """Every data set and the weights, under the names and at the commits that the project asks for."""
    root = tmp_path_factory.mktemp("hub")
    repositories = {}
    for name, task in VISION.items():
        image_files.write_repository(root / name, name, IMAGES)
        repositories["datasets", task.source.hub] = Repository(root / name, full(task.source.revision))
    for name, task in TEXT.items():
        if not task.ask:
            text_data.write_repository(root / name, name, {"train": task.held_out + 6, "test": 5})
            repositories["datasets", task.source.hub] = Repository(root / name, full(task.source.revision))
    for model in ("vit_b32", "t5_large"):
        (root / model).mkdir()
        pretrained = shipped_params()["models"][model]["pretrained"]
        repositories["models", pretrained["hub"]] = Repository(root / model, pretrained["revision"])
    torch.manual_seed(0)
    save_tensors(clip.build(CLIP).state_dict(), root / "vit_b32" / "open_clip_model.safetensors")
    save_file(small_t5.random_state(), root / "t5_large" / "model.safetensors")
    (root / "t5_large" / "tokenizer.json").write_text(small_t5.tokenizer_json())
    for number, name in enumerate(("base", "cars", "dtd")):
        (root / name).mkdir(exist_ok=True)
        weight = np.arange(4096, dtype=np.float32).reshape(64, 64) + np.float32(number)
        save_file({"w.weight": weight}, root / name / f"{name}.safetensors")
        (root / name / "config.json").write_text("{}")
        repositories["models", f"org/{name}"] = Repository(root / name)
    return repositories


def full(revision: str | None) -> str:
    """A whole commit that begins like a revision of the project's lists."""
    return (revision or COMMIT).ljust(40, "0")


@pytest.fixture
def hub(stand_ins: dict[tuple[str, str], Repository]) -> Iterator[LoopbackHub]:
    with serving() as server:
        server.repositories = dict(stand_ins)
        yield server


# -- commands: ORG/NAME@REVISION in the place of a folder -------------------------------------------------------------


def command(hub: LoopbackHub, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the project's in a folder, with this hub and the cache `home` there."""
    environment = os.environ | hub.environment(folder / "home") | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


TALLMASKS = ("-m", "tallmasks.commands.main")
TASKS = ("--task", f"cars=org/cars@{SHORT}", "--task", "dtd=org/dtd")


def test_models_and_bundles_by_name_and_revision(hub: LoopbackHub, tmp_path: Path) -> None:
    """Only models in local folders could be merged, and only bundles there loaded."""
    hub.cut.add("dtd.safetensors")
    merge = (*TALLMASKS, "merge", "--base", f"org/base@{COMMIT}", *TASKS, "--method", "task_arithmetic")
    merge += ("--scaling-coefficient", "0.5", "-o", "merged")
    broken = command(hub, tmp_path, *merge)
    (line,) = (line for line in broken.stdout.splitlines() if line.startswith("error: "))
    assert broken.returncode == 1 and "Traceback" not in broken.stdout and not (tmp_path / "merged").exists()
    assert "huggingface.co/org/dtd at main" in line and "Run the command again" in line
    hub.cut.clear()
    hub.downloads.clear()
    merged = command(hub, tmp_path, *merge)
    assert merged.returncode == 0, merged.stdout
    assert hub.downloads == ["dtd.safetensors"], "what is there already is not downloaded twice"
    base = np.arange(4096, dtype=np.float32).reshape(64, 64)
    (weights,) = (tmp_path / "merged").glob("*.safetensors")
    np.testing.assert_array_equal(load_file(weights)["w.weight"], base + np.float32(0.5 * (1 + 2)))

    done = command(hub, tmp_path, *TALLMASKS, "compress", "--base", f"org/base@{COMMIT}", *TASKS, "-o", "bundle")
    assert done.returncode == 0, done.stdout
    hub.repositories["models", "org/bundle"] = Repository(tmp_path / "bundle")
    load = "import tallmasks; print(tallmasks.load_bundle({!r}).arrays('dtd')['w.weight'].tobytes().hex())"
    here, there = (command(hub, tmp_path, "-c", load.format(name)) for name in ("bundle", f"org/bundle@{SHORT}"))
    assert here.returncode == there.returncode == 0, there.stdout
    assert there.stdout.splitlines()[-1] == here.stdout.splitlines()[-1]
    assert "bundle.json" in hub.downloads


REFUSALS = {
    "org/other": "the hub has no such repository, or it is private",
    "org/cars@v9": "the repository has no such revision",
    "org/cars@1234567": "0 of its 2 commits begin with 1234567",
    "org/gated": "the repository is gated. Accept its terms",
}


@pytest.mark.parametrize("model", REFUSALS)
def test_a_command_says_in_one_line_what_the_hub_refuses(model: str, hub: LoopbackHub, tmp_path: Path) -> None:
    """Who misspells a name, or has no access yet, would read the traceback of a library."""
    hub.repositories["models", "org/gated"] = hub.repositories["models", "org/cars"]
    hub.gated.add("org/gated")
    merge = ("merge", "--base", "org/base", "--task", f"cars={model}", "--task", "dtd=org/dtd")
    done = command(hub, tmp_path, *TALLMASKS, *merge, "--method", "task_arithmetic", "-o", "merged")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("error: "))
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert REFUSALS[model] in line and model.partition("@")[0] in line
