"""What is known of tasks' data, in plans: what it is made from, what follows from it, and who has none."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import ROOT
from tallmasks.plan import recipes
from tallmasks.plan.params import check
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import VIEWS
from tallmasks.store.errors import TallmasksError

Params = dict[str, Any]
TASKS = ("mnist", "svhn")


def nodes(params: Params) -> dict[str, str]:
    """The digests of what leads from examples to the rows, and of one of the paper's."""
    plan = Plan(params, ROOT)
    found = {stage: getattr(plan, stage)("tiny", "mnist", 0) for stage in ("checkpoint", "grams", "fisher")}
    for merge in ("sum", "regmean", "fisher"):
        found[f"merge {merge}"] = plan.multi_task_vector("tiny", TASKS, merge, 0)
    for name in ("task_arithmetic", "regmean", "fisher"):
        found[f"evaluation {name}"] = plan.evaluation("tiny", TASKS, name, 0)
    return {name: node.digest for name, node in found.items()}


def test_statistics_are_of_the_checkpoint_and_of_training_examples(params: Params) -> None:
    """A merge would have seen validation or test data, or the statistics of another seed's models."""
    plan = Plan(params, ROOT)
    for stage in ("grams", "fisher"):
        node = getattr(plan, stage)("tiny", "mnist", 1)
        assert node.inputs["checkpoint"] == (plan.checkpoint("tiny", "mnist", 1),)
        assert node.inputs["head"] == (plan.head("tiny", "mnist"),)
        splits = [one.params["split"] for one in node.walk() if one.kind == "examples"]
        assert splits == ["train"]
        merge = {"grams": "regmean", "fisher": "fisher"}[stage]
        merged = plan.multi_task_vector("tiny", TASKS, merge, 1)
        assert merged.inputs["statistics"] == tuple(getattr(plan, stage)("tiny", task, 1) for task in TASKS)


def test_more_examples_are_other_statistics_and_nothing_else(params: Params) -> None:
    """A new number would show old merges, or fine-tune anew; a file without the key would stand for another number."""
    before = nodes(params)
    params["statistics"] = {"examples": 64}
    after = nodes(params)
    assert {name for name in before if before[name] != after[name]} == {
        "grams", "fisher", "merge regmean", "merge fisher", "evaluation regmean", "evaluation fisher"
    }  # fmt: skip
    del params["statistics"]
    check(params)
    assert nodes(params) == before


def test_an_adapter_has_no_regmean_and_says_so_in_one_line(params: Params) -> None:
    """The jobs of RegMean would fail one by one, after hours of fine-tuning; or there would be no long table at all."""
    plan = Plan(params, ROOT)
    shown = recipes.of_view(plan, VIEWS["field"], "tiny_t5_ia3", "7nlp")["params"]["methods"]
    assert "fisher" in shown and "regmean" not in shown
    assert "regmean" in recipes.of_view(plan, VIEWS["field"], "tiny_t5", "7nlp")["params"]["methods"]
    params["methods"] = ["task_arithmetic", "regmean"]
    with pytest.raises(TallmasksError) as refused:
        recipes.of_view(Plan(params, ROOT), VIEWS["benchmark"], "tiny_t5_ia3", "7nlp")
    assert "models.tiny_t5_ia3" in str(refused.value) and "regmean" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_family_without_log_probabilities_learns_no_merge_and_says_so(params: Params) -> None:
    """The job that learns would fail, after hours of fine-tuning."""
    own = {
        **params["models"]["tiny"],
        "family": "toys.numbers_toy",
        "tasks": "toys.numbers_toy",
        "architecture": "linear",
    }
    params["models"]["own"], params["benchmarks"]["own"] = own, ["north", "east"]
    params["methods"] = ["task_arithmetic", "adamerging"]
    with pytest.raises(TallmasksError, match=r"models.own: no log-probabilities of choices .* adamerging") as refused:
        recipes.of_view(Plan(params, ROOT), VIEWS["benchmark"], "own", "own")
    assert "\n" not in str(refused.value)
    assert "adamerging" not in recipes.of_view(Plan(params, ROOT), VIEWS["field"], "own", "own")["params"]["methods"]
