"""Recipes of the CLIP models: where weights and checkpoints come from."""

from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from plans import paths
from reproduction.plan import chain
from reproduction.plan.project import closure
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from reproduction.tasks.vision.vision_tasks import vision_task_of
from tallmasks.errors import TallmasksError

Params = dict[str, Any]


@pytest.fixture
def params(params: Params) -> Params:
    """One CLIP model, two tasks."""
    params["models"] = {"vit_b32": params["models"]["vit_b32"]}
    params["benchmarks"] = {"two": ["fer2013", "mnist"]}
    return params


def test_imported_checkpoints_take_the_place_of_fine_tuning(params: Params) -> None:
    """Somebody else's checkpoints would be fine-tuned once more, or meet heads that they were not trained with."""
    before = paths(params, "vit_b32")
    params["models"]["vit_b32"]["checkpoints"] = {"source": "published", "revision": "0" * 40}
    plan = Plan(params, ROOT)
    nodes = closure(plan, "vit_b32")
    assert {"import_checkpoint"} == {node.kind for node in nodes} & {"import_checkpoint", "finetune"}
    assert not [node for node in nodes if node.kind == "examples" and "-train-" in node.path]
    node = chain.finetune(plan, "vit_b32", "mnist", 0)
    assert node is chain.finetune(plan, "vit_b32", "mnist", 0)
    assert node.recipe["params"]["checkpoint"]["revision"] == "0" * 40
    assert chain.head(plan, "vit_b32", "mnist").path == before["head/mnist"]
    assert chain.head(plan, "vit_b32", "fer2013").path != before["head/fer2013"], "its classes are in another order"
    with pytest.raises(TallmasksError, match="seeds"):
        VIEWS["seeds"](plan, "vit_b32", "two")


def test_a_local_file_enters_by_its_content(params: Params, tmp_path: Path) -> None:
    """Other weights under the same name would give the old results."""
    params["models"]["vit_b32"]["pretrained"] = str(tmp_path / "weights.pt")
    found = []
    for content in (b"one", b"two."):
        (tmp_path / "weights.pt").write_bytes(content)
        found.append(chain.head(Plan(params, ROOT), "vit_b32", "mnist").digest)
    assert found[0] != found[1]
    kinds = [node.kind for node in chain.head(Plan(params, ROOT), "vit_b32", "mnist").walk()]
    assert kinds == ["head", "pretrained"], "what is not in the project's format is converted once"


def test_zero_shot_needs_no_checkpoint(params: Params, tmp_path: Path) -> None:
    """The first look at a new machine would wait for checkpoints, or be stale for another seed."""
    before = VIEWS["zeroshot"](Plan(params, ROOT), "vit_b32", "two").recipe
    params["models"]["vit_b32"] |= {"checkpoints": str(tmp_path / "nowhere")}
    zeroshot = VIEWS["zeroshot"](Plan({**params, "seeds": [7]}, ROOT), "vit_b32", "two")
    assert zeroshot.recipe == before
    (top, *_) = zeroshot.inputs["task_evaluations"]
    assert {node.kind for node in top.walk()} == {"evaluate_task", "head", "examples", "pretrained"}


def test_a_task_of_ones_own(params: Params, tmp_path: Path) -> None:
    """A name taken twice would read the wrong images; a benchmark would not know the task."""
    (tmp_path / "own").mkdir()
    own = {"path": str(tmp_path / "own"), "classes": ["oak", "maple"], "templates": ["a photo of a {}."]}
    params |= {"vision_tasks": {"leaves": own}, "benchmarks": {"two": ["leaves", "mnist"]}}
    plan = Plan(params, ROOT)
    assert chain.head(plan, "vit_b32", "leaves").params["classes"] == ["oak", "maple"]
    examples = chain.examples(plan, "vit_b32", "leaves", "train")
    assert vision_task_of(examples.params).classes == ("oak", "maple") and "data" in examples.sources
    assert list(plan.paper_benchmarks("vit_b32")) == ["two"]
    with pytest.raises(TallmasksError, match="'cars'"):
        Plan({**params, "vision_tasks": {"cars": own}}, ROOT)
