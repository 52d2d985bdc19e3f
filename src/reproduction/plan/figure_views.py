"""The views that only the paper's figures need; see `reproduction.plan.views`."""

from __future__ import annotations

from collections.abc import Callable

from reproduction.models.families import trains_heads
from reproduction.plan import chain
from reproduction.plan.chain import Seed, Tasks
from reproduction.plan.node import Node
from reproduction.plan.settings import Plan
from reproduction.plan.views import Artifacts, FurtherParams, NotOfThisBenchmark, agreeing_merges, view
from reproduction.training.controlled import Controlled
from tallmasks import methods
from tallmasks.methods import Method
from tallmasks.methods.contract import merged_vector
from tallmasks.methods.rows.masks_over_merges import keep_agreed

ILLUSTRATED = 4  # tasks in figure 1


def _rows(of_merge: Callable[[str], Method]) -> FurtherParams:
    """Parameters with the row of every merge that has consensus masks."""
    return lambda plan, model, benchmark: {
        "methods": [of_merge(merge).name for merge in agreeing_merges(plan, model, benchmark)]
    }


def _fine_tuned(plan: Plan, model: str, members: Tasks, seed: Seed) -> list[Node]:
    return [chain.evaluate_task(plan, model, task, "fine_tuned", seed) for task in members]


@view(version=2, files=("density.csv", "tensors.csv", "overlap.csv"), params=_rows(methods.masking))
def mask_statistics(plan: Plan, model: str, name: str) -> Artifacts:
    """Density and overlap of the selected masks."""
    members, seed, merges = plan.members(plan.tasks_for(model, name)), plan.seeds[0], agreeing_merges(plan, model, name)
    return {
        "selections": [chain.evaluate(plan, model, members, methods.masking(merge).name, seed) for merge in merges],
        "mask_bundles": [chain.mask(plan, model, members, merge, seed) for merge in merges],
        "merged": [chain.merge(plan, model, members, merge, seed) for merge in merges],
    }


def _threshold_of(row: methods.Method) -> int | None:
    """The threshold k of a consensus row; 0 for a merge alone, which keeps all weights; None for other methods."""
    if row.update is keep_agreed:
        return int(row.chosen["k"])
    return 0 if row.update is merged_vector else None


@view(version=3, files=("thresholds.csv",), params=_rows(methods.consensus))
def thresholds(plan: Plan, model: str, name: str) -> Artifacts:
    """Consensus merging at every threshold k (figure 6).  A k without a row in tables can use fewer images."""
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]

    def at_threshold(consensus: methods.Method, k: int) -> Node:
        for row in methods.rows_on(str(consensus.merge), lambda row: row.protocol == consensus.protocol):
            if _threshold_of(row) == k:
                return chain.evaluate(plan, model, members, row.name, seed)
        row_at_k = methods.spec_of({consensus.name: {"k": k}})
        return chain.evaluate(plan, model, members, row_at_k, seed, sweep="thresholds")

    return {
        "fine_tuned": _fine_tuned(plan, model, members, seed),
        **{
            row.name: [at_threshold(row, k) for k in range(len(members) + 2)]
            for row in map(methods.consensus, agreeing_merges(plan, model, name))
        },
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
    version=4,
    files=("accuracy.csv", "orders.json"),
    params=lambda plan, model, benchmark: {"orders": list(plan.subset_orders)},
)
def subsets(plan: Plan, model: str, name: str) -> Artifacts:
    """Accuracy and storage on the first n tasks of each order, for every n (figure 5)."""
    members, seed = plan.members(plan.tasks_for(model, name)), plan.seeds[0]
    return {
        "zero_shot": [chain.evaluate_task(plan, model, task, "zeroshot", seed) for task in members],
        "fine_tuned": _fine_tuned(plan, model, members, seed),
        **{
            order: [
                chain.evaluate_first_tasks(plan, model, members, order, n, seed) for n in range(1, len(members) + 1)
            ]
            for order in plan.subset_orders
        },
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
