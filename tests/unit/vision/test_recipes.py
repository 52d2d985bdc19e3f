"""What rebuilds the examples of a vision task, and what does not."""

import copy
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan

Params = dict[str, Any]


@pytest.fixture
def params(params: Params) -> Params:
    """Two vision models beside the project's own."""
    for name in ("b32", "b16"):
        model = copy.deepcopy(params["models"]["tiny"])
        params["models"][name] = {**model, "tasks": "vision", "preprocess": {"size": 224}}
    return params


def examples(params: Params, model: str = "b32", split: str = "train", task: str = "mnist") -> Node:
    return Plan(params).examples(model, task, split)


def test_models_of_one_resolution_share_their_data(params: Params) -> None:
    """Three models would decode and store 20 datasets three times."""
    assert examples(params).path == examples(params, "b16").path
    assert examples(params).path.startswith("store/data/vision/examples/mnist-train-")
    params["models"]["b16"]["preprocess"]["size"] = 336
    assert examples(params).path != examples(params, "b16").path


def test_a_local_folder_counts_by_its_content(params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data copied to another disk would be decoded again, or changed data would not."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "1.png").write_bytes(b"one")
    params["data"] = {"mnist": {"path": str(folder)}}
    first = examples(params).digest
    assert first != examples({**params, "data": {}}).digest
    os.utime(folder / "train" / "1.png", (0, 0))
    assert examples(params).digest == first
    shutil.copytree(folder, tmp_path / "b")
    params["data"]["mnist"]["path"] = str(tmp_path / "b")
    assert examples(params).digest == first
    (tmp_path / "b" / "train" / "1.png").write_bytes(b"two")
    assert examples(params).digest != first
    assert examples(params, task="svhn").digest == examples({**params, "data": {}}, task="svhn").digest
