"""Recipes of the paper's figures: what a change rebuilds, and what they share with the tables."""

from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from reproduction.artifacts.labels import write_json
from reproduction.evaluation.subsets import orders
from reproduction.plan import chain, figure_stages
from reproduction.plan.drawings import figure
from reproduction.plan.planner import Plan
from reproduction.plan.project import Index
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
        (("paper", "subsets", "methods"), ["ties"], {"subsets", "task_count"}),
        (("paper", "benchmarks"), ["8tasks", "14tasks", "20tasks"], set()),
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


def test_figures_show_what_params_name(params: Params) -> None:
    """A benchmark of a user's own would miss in the figures, or one that he left out come back."""
    params["paper"]["benchmarks"] = ["14tasks", "8tasks"]
    shown = dict(figure(Plan(params, ROOT), "tiny", "per_task").recipe["params"]["benchmarks"])
    assert list(shown) == ["8tasks", "14tasks"]
    assert len(shown["14tasks"]) == 14


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


def test_subsets_follow_the_zeroshot_accuracies(params: Params, tmp_path: Path) -> None:
    """Figure 5 would show other subsets than the paper's protocol, or compute one twice."""
    params["benchmarks"] = {"six": ["cars", "dtd", "eurosat", "gtsrb", "mnist", "svhn"]}
    params["paper"]["subsets"]["orders"] = ["zeroshot_ascending", "name_ascending", "name_wave"]
    params["models"]["tiny"]["pretrained"] = str(ROOT / params["models"]["tiny"]["pretrained"])
    plan = Plan(params, tmp_path)
    assert figure_stages.known_subsets(plan, "tiny", "six") is None
    zeroshot = {task: place / 10 for place, task in enumerate(params["benchmarks"]["six"])}
    node = figure_stages.task_orders(plan, "tiny", plan.members(zeroshot))
    write_json(tmp_path / node.path, {"zeroshot": zeroshot, "orders": orders(zeroshot)}, node.recipe)
    found = figure_stages.known_subsets(plan, "tiny", "six")
    assert found is not None
    assert sum(len(subset.places) for subset, _ in found) == 18
    assert len({node.path for _, node in found}) == len(found) < 18
    cold = Plan(params, tmp_path)  # a cluster job is told one name only
    assert [Index(cold).find("tiny", node.name).recipe for _, node in found] == [n.recipe for _, n in found]
    assert {node.path for _, node in found} <= Index(Plan(params, tmp_path)).declared().keys()


def test_thresholds_that_the_tables_have_are_not_evaluated_again(params: Params) -> None:
    """Figure 6 would differ from the tables at k = 2, and cost more."""
    plan = Plan(params, ROOT)
    artifacts = VIEWS["thresholds"](plan, "tiny", "8tasks").inputs
    evaluated = {node.params["merge"]: node.params["thresholds"] for node in artifacts["thresholds"]}
    assert evaluated == {"sum": [3, 4, 5, 6, 7, 8, 9], "ties_sum": [0, 3, 4, 5, 6, 7, 8, 9]}
    rows = {str(node.params["method"]) for node in artifacts["rows"]}
    consensus = {f"consensus_{merge}{k}" for merge in ("task_arithmetic", "ties") for k in ("", "_k1")}
    assert rows == consensus | {"task_arithmetic"}
    behind = results_of(plan, "tiny", "8tasks", 0)["evaluations"]
    assert {node.path for node in artifacts["rows"]} <= {node.path for node in behind}
