"""The folders of results/ behind the paper's figures; see `tallmasks.plan.views`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tallmasks import methods
from tallmasks.methods import Method
from tallmasks.plan import figure_stages  # noqa: F401  (declares their stages)
from tallmasks.plan.chain import Seed, Tasks
from tallmasks.plan.node import Node
from tallmasks.plan.views import Artifacts, ShownParams, agreeing_merges, view

if TYPE_CHECKING:
    from tallmasks.plan.planner import Plan

ILLUSTRATED = 4
"""How many tasks figure 1 shows."""


def _rows(of_merge: Callable[[str], Method]) -> ShownParams:
    """The row over each merge that has a consensus."""
    return lambda plan, model, benchmark: {"methods": [of_merge(merge).name for merge in agreeing_merges(plan)]}


def _fine_tuned(plan: Plan, model: str, members: Tasks, seed: Seed) -> list[Node]:
    return [plan.task_evaluation(model, task, "fine_tuned", seed) for task in members]


@view(script="mask_tables", version=2, params=_rows(methods.masking))
def masks(plan: Plan, model: str, name: str) -> Artifacts:
    """Densities and overlaps of the selected masks."""
    members, seed, merges = plan.members(plan.tasks_for(model, name)), plan.seeds[0], agreeing_merges(plan)
    return {
        "selections": [plan.evaluation(model, members, methods.masking(merge).name, seed) for merge in merges],
        "mask_bundles": [plan.mask_bundle(model, members, merge, seed) for merge in merges],
        "merged": [plan.multi_task_vector(model, members, merge, seed) for merge in merges],
    }


@view(script="threshold_table", version=2, params=_rows(methods.consensus))
def thresholds(plan: Plan, model: str, name: str) -> Artifacts:
    """Consensus merging at every threshold k."""
    members, seed, merges = plan.members(plan.tasks_for(model, name)), plan.seeds[0], agreeing_merges(plan)
    rows = [methods.at_threshold(merge, k) for merge in merges for k in range(len(members) + 2)]
    return {
        "thresholds": [plan.threshold_evaluation(model, members, merge, seed) for merge in merges],
        "rows": [plan.evaluation(model, members, row.name, seed) for row in rows if row],
        "fine_tuned": _fine_tuned(plan, model, members, seed),
    }


@view(script="controlled_table", version=2)
def controlled(plan: Plan, model: str, name: str) -> Artifacts:
    """Task arithmetic with and without interference, weight by weight (table 1)."""
    members, seed, partition = plan.members(plan.tasks_for(model, name)), plan.seeds[0], plan.controlled(name)
    return {
        "standard": [
            *_fine_tuned(plan, model, members, seed),
            plan.evaluation(model, members, "task_arithmetic", seed),
        ],
        "controlled": [
            *_fine_tuned(plan, model, members, partition),
            plan.evaluation(model, members, "task_arithmetic", partition),
        ],
    }


@view(
    script="subset_tables",
    version=2,
    params=lambda plan, model, benchmark: {"orders": list(plan.subset_orders)},
    grows=True,
)
def subsets(plan: Plan, model: str, name: str) -> Artifacts:
    """Figure 5; the evaluations of all subsets follow once zero-shot accuracies decide which they are.

    The recipe of "whole", the evaluation of the whole benchmark, changes whenever that of a subset does.
    """
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]
    return {
        "orders": [plan.task_orders(model, members)],
        "fine_tuned": _fine_tuned(plan, model, members, seed),
        "whole": [plan.subset_evaluation(model, members, seed)],
    }


@view(
    script="illustrate",
    version=2,
    params=lambda plan, model, benchmark: {"grid": list(plan.grids(model)["mask_lambda"])},
)
def illustration(plan: Plan, model: str, name: str) -> Artifacts:
    """A block of one matrix, from task vectors to masks (figure 1)."""
    tasks, seed = plan.tasks_for(model, name), plan.seeds[0]
    return {"task_vectors": [plan.task_vector(model, task, seed) for task in tasks[:ILLUSTRATED]]}
