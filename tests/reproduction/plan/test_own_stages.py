"""Plans with own stages, merges and inputs."""

from typing import Any

import pytest

from conftest import ROOT
from reproduction.plan import chain
from reproduction.plan.node import Node, Spec, Stage
from reproduction.plan.settings import Plan
from tallmasks.methods import INPUTS, Input, Merge, PerTask, registry, storage_formulas
from tallmasks.methods.contract import Method
from tallmasks.methods.merges import Statistic

TASKS = ("mnist", "svhn")


def overlaps(plan: Plan, model: str, tasks: tuple[str, ...], merge: str | None, seed: int, *, share: float) -> Spec:
    inputs = {"task_vectors": chain.task_vectors(plan, model, tasks, seed)}
    params = {"tasks": list(tasks), "merge": merge, "share": share}
    return Spec(f"overlaps-{len(tasks)}-s{seed}", params, inputs)


def largest(rows: Any, place: Any, prepared: Any) -> Any:
    return max(rows)


def look(vectors: Any, statistics: Any, *, share: float = 0.5) -> Any:
    return statistics


def overlap(source: Any, task: int, level: int, *, share: float = 0.3, power: float = 1.0) -> float:
    return power


def scaled(task_vector: Any, overlap: float) -> Any:
    return task_vector * overlap


@pytest.fixture
def plan(params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan with a joint stage, a merge and a method that use it; the method has no merge."""
    made = Stage("overlaps", 1, overlaps, ("store/{model}/derived/overlaps/{name}.safetensors",), joint=True)
    own, statistic = Input("overlap", "one", "benchmark", overlap), Statistic("overlaps", "overlaps of the tasks")
    monkeypatch.setitem(chain.STAGE_OF, own, made)
    monkeypatch.setitem(chain.STAGE_OF, statistic, made)
    monkeypatch.setitem(INPUTS, "overlap", own)
    merge = Merge("largest_own", largest, prepare=look, statistics=statistic)
    monkeypatch.setitem(registry._merges, "largest_own", merge)
    method = Method(
        "scaled_own", scaled, PerTask(), 900, "Scaled", "nobody", storage=storage_formulas.finetuned, group="later"
    )
    monkeypatch.setitem(registry._methods, "scaled_own", method)
    return Plan(params, ROOT)


def only(nodes: tuple[Node, ...]) -> Node:
    (node,) = nodes
    return node


def test_a_joint_stage_is_made_once_from_all_tasks(plan: Plan) -> None:
    """A merge of one's own could have statistics of single tasks alone; or masks over it would not be of it."""
    made = only(chain.merge(plan, "tiny", TASKS, "largest_own", 0).inputs["statistics"])
    assert (made.kind, made.params["tasks"]) == ("overlaps", list(TASKS))
    assert made.inputs["task_vectors"] == tuple(chain.task_vectors(plan, "tiny", TASKS, 0))
    other = only(chain.merge(plan, "tiny", TASKS, "largest_own:share=0.2", 0).inputs["statistics"])
    assert other.params["merge"] == "largest_own:share=0.2"
    assert (made.params["share"], other.params["share"]) == (0.5, 0.2)
    assert made in chain.mask(plan, "tiny", TASKS, "largest_own", 0).walk()


def test_the_options_of_an_input_that_its_stage_takes_reach_its_recipe(plan: Plan) -> None:
    """The method would be shown with one option and computed from an artifact of another."""
    plain, other, same = (
        only(chain.evaluate(plan, "tiny", TASKS, f"scaled_own{options}", 0).inputs["overlaps"])
        for options in ("", ":share=0.2", ":power=2.0")
    )
    assert other.params["share"] == 0.2 and plain.digest == same.digest != other.digest
