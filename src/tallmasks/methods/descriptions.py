"""Descriptions of methods, merges and inputs for `tallmasks methods` and the tables."""

from __future__ import annotations

from tallmasks.methods.contract import Method
from tallmasks.methods.inputs import Input
from tallmasks.methods.merges import Merge
from tallmasks.methods.method_protocols import Masked, Scaled
from tallmasks.methods.registry import get_merge, statistics_behind
from tallmasks.methods.rows.parts.singular_vectors import noise_of_tasks

WHOLE = "whole task vectors"


def needs(method: Method) -> str:
    """The data that a method needs besides the checkpoints."""
    chosen = []
    if isinstance(method.protocol, Masked) or "agreement" in method.all_inputs:
        chosen.append("lambda")
    if isinstance(method.protocol, Scaled) and method.protocol.values != (1.0,):
        chosen.append(method.tuned or "alpha")
    validation = [f"validation data for {' and '.join(chosen)}"] if chosen else []
    data = statistics_behind(method)
    return "; ".join([*validation, *([data.meaning] if data else [])]) or "nothing"


def looks_at(method: Method) -> str:
    """The part of the task vectors that a method and its merge need at once."""
    if method.whole_model:
        return "the whole model"
    seen = [seen_by(get_merge(method.merge))] if method.merge else []
    whole = [WHOLE] if "threshold" in method.needs else []
    return ", ".join(whole + (seen or ["slices"]))


def seen_by(merge: Merge) -> str:
    """The part of the task vectors that a merge needs at once."""
    return f"{WHOLE}, {merge.over}" if merge.prepare or merge.learn else merge.over


def data_of(merge: Merge) -> str:
    """The data that a merge needs besides the task vectors."""
    return merge.statistics.meaning if merge.statistics else "nothing"


def inputs_of(method: Method) -> list[str]:
    """The inputs of a method, with its merge's name instead of ``multi_task_vector``."""
    merge = [f"merge {method.merge}"] if method.merge else []
    return [
        *merge,
        *(name for name in sorted(method.needs) if not (merge and name in ("multi_task_vector", "stored_vector"))),
    ]


def varies_by(entry: Input) -> str:
    return {"benchmark": "one for all tasks", "task": "one per task"}.get(entry.per, "one per task and lambda")


def uses_small_directions(merge: Merge) -> bool:
    """True if a merge depends on small singular values, which rounding to bfloat16 changes."""
    return merge.prepare is noise_of_tasks
