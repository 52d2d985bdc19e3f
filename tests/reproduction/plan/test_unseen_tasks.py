"""Benchmarks that evaluate other tasks than they merge, and each task left out in turn."""

from typing import Any

from conftest import ROOT
from reproduction.plan.project import Index, closure
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from tallmasks import methods

Params = dict[str, Any]


def test_no_merge_knows_the_task_that_it_is_evaluated_on(params: Params) -> None:
    """The accuracy on an unseen task would be that of a model that was fine-tuned on it, or chosen by its data."""
    params["benchmarks"]["unseen"] = {"merge": ["cars", "dtd"], "evaluate": ["svhn", "mnist"]}
    plan = Plan(params, ROOT)
    recipe = VIEWS["tables"](plan, "tiny", "unseen").recipe["params"]
    assert recipe["tasks"] == ["svhn", "mnist"] and recipe["merged"] == ["cars", "dtd"] and not recipe["agreements"]
    merging = [name for name in methods.names("paper") if methods.get(name).section == "merging"]
    assert recipe["methods"] == [*merging, "fine_tuned"], "what has masks of its own is no row"
    of_table = VIEWS["tables"](plan, "tiny", "unseen").inputs["0/evaluations"]
    left_out = VIEWS["held_out"](plan, "tiny", "8tasks").inputs["evaluations"]
    assert len(of_table) == len(merging) - 1 and len(left_out) == 8 * (len(merging) - 1)
    for node in (*of_table, *left_out):
        evaluated = set(node.params["tasks"])
        (selection,) = node.inputs["selection"]
        assert selection.params["tasks"] == node.params["merged"] and not evaluated & set(node.params["merged"])
        assert not any(evaluated & {behind.params.get("task")} for behind in selection.walk())
    behind = closure(plan, "tiny")
    assert {node.path for node in of_table} <= {node.path for node in behind}
    assert {node.path for node in left_out} <= Index(plan).declared(["tiny"]).keys()
