"""The views that only the paper's figures need; see `reproduction.plan.views`."""

from __future__ import annotations

from collections.abc import Callable

from reproduction.models.families import trains_heads
from reproduction.plan import chain, figure_stages
from reproduction.plan.chain import Seed, Tasks
from reproduction.plan.node import Node
from reproduction.plan.planner import Plan
from reproduction.plan.views import Artifacts, NotOfThisBenchmark, ShownParams, agreeing_merges, view
from reproduction.training.controlled import Controlled
from tallmasks import methods
from tallmasks.methods import Method

ILLUSTRATED = 4  # tasks in figure 1


def _rows(of_merge: Callable[[str], Method]) -> ShownParams:
    """Parameters with the row of every merge that has consensus masks."""
    return lambda plan, model, benchmark: {
        "methods": [of_merge(merge).name for merge in agreeing_merges(plan, model, benchmark)]
    }


def _fine_tuned(plan: Plan, model: str, members: Tasks, seed: Seed) -> list[Node]:
    return [chain.evaluate_task(plan, model, task, "fine_tuned", seed) for task in members]


@view(version=2, files=("density.csv", "tensors.csv", "overlap.csv"), params=_rows(methods.masking))
def masks(plan: Plan, model: str, name: str) -> Artifacts:
    """Density and overlap of the selected masks."""
    members, seed, merges = plan.members(plan.tasks_for(model, name)), plan.seeds[0], agreeing_merges(plan, model, name)
    return {
        "selections": [chain.evaluate(plan, model, members, methods.masking(merge).name, seed) for merge in merges],
        "mask_bundles": [chain.mask(plan, model, members, merge, seed) for merge in merges],
        "merged": [chain.merge(plan, model, members, merge, seed) for merge in merges],
    }


@view(version=2, files=("thresholds.csv",), params=_rows(methods.consensus))
def thresholds(plan: Plan, model: str, name: str) -> Artifacts:
    """Consensus merging at every threshold k."""
    members, seed, merges = plan.members(plan.tasks_for(model, name)), plan.seeds[0], agreeing_merges(plan, model, name)
    rows = [methods.at_threshold(merge, k) for merge in merges for k in range(len(members) + 2)]
    return {
        "thresholds": [figure_stages.evaluate_thresholds(plan, model, members, merge, seed) for merge in merges],
        "rows": [chain.evaluate(plan, model, members, row.name, seed) for row in rows if row],
        "fine_tuned": _fine_tuned(plan, model, members, seed),
    }


@view(version=2, files=("controlled.csv",))
def controlled(plan: Plan, model: str, name: str) -> Artifacts:
    """Task arithmetic with and without interference, weight by weight (table 1)."""
    if trains_heads(plan.model(model)):
        raise NotOfThisBenchmark(
            f"results/{model}/{name}/controlled: each task trains its own part of the weights, so heads must be "
            "frozen: it needs `heads: class_names`"
        )
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]
    partition = Controlled(seed, members)
    return {
        "standard": [
            *_fine_tuned(plan, model, members, seed),
            chain.evaluate(plan, model, members, "task_arithmetic", seed),
        ],
        "controlled": [
            *_fine_tuned(plan, model, members, partition),
            chain.evaluate(plan, model, members, "task_arithmetic", partition),
        ],
    }


@view(
    version=2,
    files=("accuracy.csv", "orders.json"),
    late_inputs=lambda plan, model, benchmark: figure_stages.subset_evaluations(plan, model, benchmark),
    params=lambda plan, model, benchmark: {"orders": list(plan.subset_orders)},
)
def subsets(plan: Plan, model: str, name: str) -> Artifacts:
    """Figure 5.  The subsets are known only after zero-shot accuracies, so their evaluations are late inputs.

    "whole", the evaluation of the whole benchmark, puts the settings of these evaluations into the recipe.
    """
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]
    return {
        "orders": [figure_stages.task_orders(plan, model, members)],
        "fine_tuned": _fine_tuned(plan, model, members, seed),
        "whole": [figure_stages.evaluate_subset(plan, model, members, seed)],
    }


@view(
    version=2,
    files=("weights.csv",),
    params=lambda plan, model, benchmark: {"grid": list(plan.grids(model)["mask_lambda"])},
)
def illustration(plan: Plan, model: str, name: str) -> Artifacts:
    """A block of one matrix, from task vectors to masks (figure 1)."""
    tasks, seed = plan.tasks_for(model, name), plan.seeds[0]
    return {"task_vectors": [chain.task_vector(plan, model, task, seed) for task in tasks[:ILLUSTRATED]]}
