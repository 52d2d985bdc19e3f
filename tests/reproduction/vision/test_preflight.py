"""Missing downloads are reported before a build."""

from pathlib import Path
from typing import Any

import pytest

from image_files import cached_repository, write_repository
from loopback_hub import REPOSITORY, loopback_hub
from reproduction.plan import chain
from reproduction.plan.node import Node
from reproduction.plan.preflight import Wanted, refused, unavailable
from reproduction.plan.settings import Plan
from tallmasks.io import hub

Params = dict[str, Any]


def behind(params: Params, tasks: tuple[str, ...] = ("mnist", "kmnist")) -> list[Node]:
    plan = Plan(params)
    tops = [chain.evaluate_task(plan, "vit_b32", task, "fine_tuned", 0) for task in tasks]
    return [node for top in tops for node in top.walk()]


def test_what_is_on_this_machine_is_not_missing(params: Params, offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compute node without network access would refuse to start, although it has all the files."""
    weights, local = offline.parent / "weights.pt", offline.parent / "kmnist"
    weights.touch()
    params["models"]["vit_b32"]["pretrained"] = str(weights)
    write_repository(local, "kmnist", {"train": 4, "test": 4})
    params["data"] = {"kmnist": {"path": str(local)}}
    write_repository(cached_repository(offline, "mnist"), "mnist", {"train": 4, "test": 4})
    monkeypatch.setattr(hub, "reachable", lambda: pytest.fail("asked the network"))
    assert unavailable(behind(params)) == []


def test_a_file_that_the_hub_lacks_is_named(tmp_path: Path) -> None:
    """A missing file would stop the run midway."""
    (tmp_path / "files").mkdir()
    for name in ("train-0.parquet", "test-0.parquet", "README.md", "model.bin"):
        (tmp_path / "files" / name).write_bytes(b"x")
    with loopback_hub(tmp_path / "files", tmp_path / "cache"):
        examples = Wanted(REPOSITORY, "main", "dataset", (("train-*.parquet",), ("test-*.parquet",)))
        weights = Wanted(REPOSITORY, "main", "model", (("model.safetensors", "model.bin"), ("README.md",)))
        other = Wanted(REPOSITORY, "main", "model", (("model.bin",), ("a.json", "b.model")))
        (message,) = refused([examples, other, weights])
        assert "org/name/a.json or b.model at main" in message
