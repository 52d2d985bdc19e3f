"""Recipes of the paper's figures: what a change rebuilds, and what they share with the tables."""

from typing import Any

import pytest

from conftest import ROOT
from reproduction.plan import chain
from reproduction.plan.figures_and_tables import figure
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS, results_of
from reproduction.results.figures import FIGURES
from reproduction.training.controlled import Controlled

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
