"""Inputs of one's own."""

from types import SimpleNamespace

import pytest

from tallmasks.methods import INPUTS, Input, PerTask, bits
from tallmasks.methods.contract import Method


def update(task_vector, shared):
    return task_vector * shared


def test_an_artifact_of_all_tasks_needs_no_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method would have to name a merge that it does not use, and have an artifact for each merge."""
    monkeypatch.setitem(
        INPUTS, "shared", Input("shared", "one", "benchmark", lambda *_: 1.0, "stage", "shared", joint=True)
    )
    method = Method("mine", update, PerTask(), 1, "Mine", "nobody", storage=bits.finetuned)
    asked: list[tuple] = []
    plan = SimpleNamespace(stage=lambda *which: asked.append(which))
    (shared,) = (one for one in method.stored_inputs if one.role == "shared")
    shared.artifacts(plan, "tiny", ("a", "b"), method.merge, 0)
    assert asked == [("tiny", ("a", "b"), 0)] and method.merge is None
