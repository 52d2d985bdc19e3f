"""Recipes: what rebuilds, what is shared, and what a typo in params.yaml gets."""

import dataclasses
from typing import Any

import pytest

from conftest import ROOT
from plans import paths
from reproduction.plan import chain
from reproduction.plan.project import Index, closure
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from tallmasks import methods
from tiny_worlds.drawn import TASKS

Params = dict[str, Any]
EVALUATED = {"evaluate", "evaluate_task", "consensus"}
TRAINED = {"finetune", "task_vector", "merge", "mask"}


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        ("grids mask_lambda", [0.2, 0.4], {"mask", "consensus", "evaluate"}),
        ("models tiny finetuning learning_rate", 0.5, EVALUATED | TRAINED),
        ("models tiny examples test", 17, EVALUATED | {"examples"}),
        ("models tiny resources evaluation threads", 7, set()),
        ("models vit_b32 pretrained revision", "0" * 40, {"pretrained", "head"} | EVALUATED | TRAINED),
        ("models vit_b32 resources finetuning micro_batch_size", 32, set()),
        ("models vit_b32 evaluation precision", "tf32", EVALUATED),
    ],
)
def test_a_parameter_renames_what_depends_on_it_and_nothing_else(
    params: Params, keys: str, value: Any, expected: set[str]
) -> None:
    """A user would wait for fine-tunings that nobody asked for, or keep results of old parameters."""
    model = "vit_b32" if "vit_b32" in keys else "tiny"
    params["models"] = {model: params["models"][model]}
    params["benchmarks"] = {"two": ["svhn", "mnist"]}
    before = paths(params, model)
    place: Any = params
    *outer, last = keys.split()
    for key in outer:
        place = place[key]
    assert place.get(last) != value
    place[last] = value
    after = paths(params, model)
    assert before.keys() == after.keys()
    assert {name.split("/")[0] for name in before if before[name] != after[name]} == expected


def test_a_lone_job_finds_its_recipe(params: Params) -> None:
    """A cluster job is told one file name only, and would not know what to make."""
    plan = Plan(params, ROOT)
    for node in closure(Plan(params, ROOT), "tiny"):
        assert Index(plan).find(node.model, node.name).path == node.path


def test_other_prompts_of_a_task_concern_that_task_alone(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed wording of one task would fine-tune all tasks again, or leave the old head in use."""
    params["benchmarks"] = {"three": ["mnist", "svhn", "dtd"], "two": ["mnist", "svhn"]}
    before = paths(params)
    monkeypatch.setitem(TASKS, "dtd", dataclasses.replace(TASKS["dtd"], templates=("a picture of {}",)))
    after = paths(params)
    renamed = {name for name in before if before[name] != after[name]}
    assert {"head/dtd", "finetune/dtd-s0", "task_vector/dtd-s0", "merge/sum-3tasks-s0"} <= renamed
    assert not any("mnist" in name or "svhn" in name or "-2tasks" in name for name in renamed)


def test_a_view_knows_its_name_and_its_order(params: Params) -> None:
    """A table with the tasks in the old order would pass for fresh."""
    first = VIEWS["tables"](Plan(params, ROOT), "tiny", "8tasks").digest
    params["benchmarks"]["8tasks"].reverse()
    assert VIEWS["tables"](Plan(params, ROOT), "tiny", "8tasks").digest != first


def test_a_bundle_follows_from_its_row_and_is_made_only_when_it_is_asked_for(params: Params) -> None:
    """Every table would wait for bundles; or a bundle would hold masks of other lambdas than its evaluation chose."""
    plan = Plan(params, ROOT)
    assert "bundle_archive" not in {node.kind for node in closure(plan, "tiny")}
    (node,) = VIEWS["bundle"](plan, "tiny", "8tasks").inputs["bundle"]
    members = plan.members(plan.tasks("tiny", "8tasks"))
    vectors = tuple(chain.task_vector(plan, "tiny", task, 0) for task in members)
    assert node.inputs == {"task_vectors": vectors} and node.params["code"] == methods.code(["stochastic_rounding"])
    assert node.params["base"] == "models/tiny.safetensors" and node.path in Index(plan).declared(["tiny"])
    (clip,) = VIEWS["bundle"](plan, "vit_b32", "8tasks").inputs["bundle"]
    assert clip.params["base"] == chain.pretrained(plan, "vit_b32").path
    params["bundle"] = {"stochastic_rounding": {"step": 0.2}}
    (other,) = VIEWS["bundle"](Plan(params, ROOT), "tiny", "8tasks").inputs["bundle"]
    assert other.params["method"] == "stochastic_rounding:step=0.2" and other.path != node.path
    params["bundle"] = {"tall_mask_ties": {"bits": 3}}
    of_masks = Plan(params, ROOT)
    (masked,) = VIEWS["bundle"](of_masks, "tiny", "8tasks").inputs["bundle"]
    assert masked.inputs["selection"] == (chain.evaluate(of_masks, "tiny", members, "tall_mask_ties:bits=3", 0),)
