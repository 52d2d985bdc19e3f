"""What examples of a vision task are shared by."""

import copy
from typing import Any

import pytest

from tallmasks.plan import chain
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
    return chain.examples(Plan(params), model, task, split)


def test_models_of_one_resolution_share_their_data(params: Params) -> None:
    """Three models would decode and store 20 datasets three times."""
    assert examples(params).path == examples(params, "b16").path
    assert examples(params).path.startswith("store/data/vision/examples/mnist-train-")
    params["models"]["b16"]["preprocess"]["size"] = 336
    assert examples(params).path != examples(params, "b16").path
