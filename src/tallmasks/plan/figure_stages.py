"""The stages that only figures of the paper need; see `tallmasks.plan.chain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallmasks import methods
from tallmasks.plan.chain import Seed, Tasks, evaluation_inputs, slug
from tallmasks.plan.node import Made, stage

if TYPE_CHECKING:
    from tallmasks.plan.planner import Plan


@stage(
    script="evaluate_thresholds",
    version=3,
    folder="store/{model}/derived/threshold_evaluations",
    uses="evaluation",
    ending="json",
)
def threshold_evaluation(plan: Plan, model: str, tasks: Tasks, merge: str, seed: Seed) -> Made:
    """Consensus merging at every threshold k from 0 to T + 1 that has no row, alpha tuned (figure 6)."""
    consensus = methods.consensus(merge)
    params = {
        **plan.evaluator(model),
        "tasks": list(tasks),
        "merge": merge,
        "code": methods.code([consensus.name]),
        "thresholds": [k for k in range(len(tasks) + 2) if methods.at_threshold(merge, k) is None],
        "images": plan.sweep_images(model, "thresholds"),
        "grid": list(consensus.protocol.grid(plan.grids(model))),
    }
    inputs = plan.evaluation(model, tasks, consensus.name, seed).inputs
    return Made(slug(merge, tasks, seed), params, inputs, plan.pretrained_source(model))


@stage(script="task_orders", version=2, folder="store/{model}/derived/task_orders", uses="arrays", ending="json")
def task_orders(plan: Plan, model: str, tasks: Tasks) -> Made:
    """The tasks in figure 5's orders, by zero-shot accuracies."""
    inputs = {"zeroshot": [plan.task_evaluation(model, task, "zeroshot", plan.seeds[0]) for task in tasks]}
    return Made(f"{len(tasks)}tasks", {"tasks": list(tasks)}, inputs)


@stage(
    script="evaluate_subset",
    version=3,
    folder="store/{model}/derived/subset_evaluations",
    uses="evaluation",
    ending="json",
)
def subset_evaluation(plan: Plan, model: str, tasks: Tasks, seed: Seed) -> Made:
    """Figure 5's methods on one set of tasks, from its task vectors; merges and masks are made in memory."""
    names = plan.params["paper"]["subsets"]["methods"]
    merges = sorted({merge for name in names if (merge := methods.get(name).merge)})
    params = {
        **plan.evaluator(model),
        "tasks": list(tasks),
        "images": plan.sweep_images(model, "subsets"),
        "methods": list(names),
        "code": methods.code(names, merges),
        "grids": {name: list(grid) for name, grid in plan.grids(model).items()},
    }
    inputs = {**evaluation_inputs(plan, model, tasks, seed), "task_vectors": plan.task_vectors(model, tasks, seed)}
    return Made(f"{len(tasks)}tasks-s{seed}", params, inputs, plan.pretrained_source(model))
