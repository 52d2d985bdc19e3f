"""What examples of a vision task are shared by."""

from typing import Any

from tallmasks.plan import chain
from tallmasks.plan.planner import Plan


def test_models_of_one_resolution_share_their_data(params: dict[str, Any]) -> None:
    """Three models would decode and store 20 datasets three times."""
    for name, size in (("b32", 224), ("b16", 224), ("l14", 336)):
        preprocess = {"size": size, "mean": [0.5] * 3, "std": [0.5] * 3}
        params["models"][name] = {**params["models"]["tiny"], "tasks": "vision", "preprocess": preprocess}
    one, same, other = (chain.examples(Plan(params), name, "mnist", "train").path for name in ("b32", "b16", "l14"))
    assert one == same != other
    assert one.startswith("store/data/vision/examples/mnist-train-")
