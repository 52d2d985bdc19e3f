"""A method of one's own whose input is an artifact of a stage of one's own."""

from typing import Any

import pytest

from conftest import ROOT
from reproduction.plan import chain
from reproduction.plan.node import Spec, Stage
from reproduction.plan.settings import Plan
from reproduction.plan.views import field_methods
from tallmasks.methods import INPUTS, Input, PerTask, registry, storage_formulas
from tallmasks.methods.contract import Method

TASKS = ("mnist", "svhn")


def overlaps(plan: Plan, model: str, tasks: tuple[str, ...], merge: str | None, seed: int, *, share: float) -> Spec:
    params = {"tasks": list(tasks), "merge": merge, "share": share}
    return Spec(
        f"overlaps-{len(tasks)}-s{seed}", params, {"task_vectors": chain.task_vectors(plan, model, tasks, seed)}
    )


def overlap(source: Any, task: int, level: int, *, share: float = 0.3, power: float = 1.0) -> float:
    return power


def scaled(task_vector: Any, overlap: float) -> Any:
    return task_vector * overlap


def test_an_input_may_be_an_artifact_of_all_tasks_with_options(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method would be shown with one option and computed from an artifact of another, or have no row."""
    made = Stage("overlaps", 1, overlaps, ("store/{model}/derived/overlaps/{name}.safetensors",), joint=True)
    own = Input("overlap", "one", "benchmark", overlap)
    monkeypatch.setitem(chain.STAGE_OF, own, made)
    monkeypatch.setitem(INPUTS, "overlap", own)
    row = Method("own", scaled, PerTask(), 900, "Own", "nobody", storage=storage_formulas.finetuned, group="later")
    monkeypatch.setitem(registry._methods, "own", row)
    plan = Plan(params, ROOT)
    ((plain,), (other,), (same,)) = (
        chain.evaluate(plan, "tiny", TASKS, f"own{options}", 0).inputs["overlaps"]
        for options in ("", ":share=0.2", ":power=2.0")
    )
    assert plain.params == {"tasks": list(TASKS), "merge": None, "share": 0.3}
    assert plain.inputs["task_vectors"] == tuple(chain.task_vectors(plan, "tiny", TASKS, 0))
    assert other.params["share"] == 0.2 and plain.digest == same.digest != other.digest
    assert "own" in field_methods(plan, "tiny")
