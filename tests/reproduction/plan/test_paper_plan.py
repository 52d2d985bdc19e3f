"""Recipes of the paper's figures and of its CLIP models: what a change rebuilds, and where weights are from."""

from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from plans import paths
from reproduction.plan import chain
from reproduction.plan.figures_and_tables import figure
from reproduction.plan.project import closure
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS, results_of
from reproduction.results.figures import FIGURES
from reproduction.tasks.vision.vision_tasks import vision_task_of
from reproduction.training.controlled import Controlled
from tallmasks.errors import TallmasksError

Params = dict[str, Any]


def digests(params: Params) -> dict[str, str]:
    """Digests of the views of 8tasks, and of every figure."""
    plan = Plan(params, ROOT)
    views = {kind: VIEWS[kind](plan, "tiny", "8tasks").digest for kind in VIEWS}
    return views | {name: figure(plan, "tiny", name).digest for name in FIGURES}


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (("models", "tiny", "sweeps", "subsets", "test"), 7, {"subsets", "task_count"}),
        (("models", "tiny", "sweeps", "thresholds", "validation"), 7, {"thresholds", "threshold"}),
        (("paper", "subsets", "orders"), ["name_wave"], {"subsets", "task_count"}),
        (("build",), [], set()),
    ],
)
def test_a_parameter_redraws_what_shows_it_and_nothing_else(
    params: Params, keys: tuple[str, ...], value: Any, expected: set[str]
) -> None:
    """A user would wait for a sweep that nobody asked for, or keep a figure of old parameters."""
    before = digests(params)
    place = params
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    after = digests(params)
    assert {name for name in before if before[name] != after[name]} == expected


def test_controlled_checkpoints_are_other_checkpoints(params: Params) -> None:
    """The controlled experiment would overwrite the fine-tuned models, or find theirs."""
    plan = Plan(params, ROOT)
    controlled = Controlled(0, plan.members(plan.tasks("tiny", "8tasks")))
    standard, other = chain.finetune(plan, "tiny", "mnist", 0), chain.finetune(plan, "tiny", "mnist", controlled)
    assert other.path != standard.path and "s0-controlled8" in other.path
    assert dict(other.params) == {**standard.params, "partition": {"seed": 0, "parts": 8, "part": 4}}
    artifacts = VIEWS["controlled"](plan, "tiny", "8tasks").inputs
    behind = {node.path for top in artifacts["controlled"] for node in top.walk() if node.kind == "finetune"}
    assert len(behind) == 8 and all("controlled" in path for path in behind)


def test_thresholds_that_the_tables_have_are_not_evaluated_again(params: Params) -> None:
    """Figure 6 would differ from the tables at k = 2, and cost more."""
    params["models"]["tiny"]["sweeps"] = {"thresholds": {"validation": 80}}
    plan = Plan(params, ROOT)
    artifacts = VIEWS["thresholds"](plan, "tiny", "8tasks").inputs
    behind = {node.path for node in results_of(plan, "tiny", "8tasks", 0)["evaluations"]}
    for name, first in (("task_arithmetic", "task_arithmetic"), ("ties", "consensus_ties:k=0")):
        nodes = artifacts[f"consensus_{name}"]
        rows = [first, f"consensus_{name}_k1", f"consensus_{name}", *(f"consensus_{name}:k={k}" for k in range(3, 10))]
        assert [node.params["method"] for node in nodes] == rows
        sampled = [":k=" in row for row in rows]
        assert [node.params.get("images") for node in nodes] == [{"validation": 80} if one else None for one in sampled]
        assert [node.path not in behind for node in nodes] == sampled
        assert not any("zero_shot" in node.inputs for node in nodes if "images" in node.params), "of all images"


@pytest.fixture
def of_clip(params: Params) -> Params:
    """One CLIP model, two tasks."""
    params["models"] = {"vit_b32": params["models"]["vit_b32"]}
    params["benchmarks"] = {"two": ["fer2013", "mnist"]}
    return params


def test_imported_checkpoints_take_the_place_of_fine_tuning(of_clip: Params) -> None:
    """Somebody else's checkpoints would be fine-tuned once more, or meet heads that they were not trained with."""
    before = paths(of_clip, "vit_b32")
    of_clip["models"]["vit_b32"]["checkpoints"] = {"source": "published", "revision": "0" * 40}
    plan = Plan(of_clip, ROOT)
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


def test_a_local_file_enters_by_its_content(of_clip: Params, tmp_path: Path) -> None:
    """Other weights under the same name would give the old results."""
    of_clip["models"]["vit_b32"]["pretrained"] = str(tmp_path / "weights.pt")
    found = []
    for content in (b"one", b"two."):
        (tmp_path / "weights.pt").write_bytes(content)
        found.append(chain.head(Plan(of_clip, ROOT), "vit_b32", "mnist").digest)
    assert found[0] != found[1]
    kinds = [node.kind for node in chain.head(Plan(of_clip, ROOT), "vit_b32", "mnist").walk()]
    assert kinds == ["head", "pretrained"], "what is not in the project's format is converted once"


def test_zero_shot_needs_no_checkpoint(of_clip: Params, tmp_path: Path) -> None:
    """The first look at a new machine would wait for checkpoints, or be stale for another seed."""
    before = VIEWS["zeroshot"](Plan(of_clip, ROOT), "vit_b32", "two").recipe
    of_clip["models"]["vit_b32"] |= {"checkpoints": str(tmp_path / "nowhere")}
    zeroshot = VIEWS["zeroshot"](Plan({**of_clip, "seeds": [7]}, ROOT), "vit_b32", "two")
    assert zeroshot.recipe == before
    (top, *_) = zeroshot.inputs["task_evaluations"]
    assert {node.kind for node in top.walk()} == {"evaluate_task", "head", "examples", "pretrained"}


def test_a_task_of_ones_own(of_clip: Params, tmp_path: Path) -> None:
    """A name taken twice would read the wrong images; a benchmark would not know the task."""
    (tmp_path / "own").mkdir()
    own = {"path": str(tmp_path / "own"), "classes": ["oak", "maple"], "templates": ["a photo of a {}."]}
    of_clip |= {"vision_tasks": {"leaves": own}, "benchmarks": {"two": ["leaves", "mnist"]}}
    plan = Plan(of_clip, ROOT)
    assert chain.head(plan, "vit_b32", "leaves").params["classes"] == ["oak", "maple"]
    examples = chain.examples(plan, "vit_b32", "leaves", "train")
    assert vision_task_of(examples.params).classes == ("oak", "maple") and "data" in examples.sources
    assert list(plan.paper_benchmarks("vit_b32")) == ["two"]
    with pytest.raises(TallmasksError, match="'cars'"):
        Plan({**of_clip, "vision_tasks": {"cars": own}}, ROOT)
