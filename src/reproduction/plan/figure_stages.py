"""The stages that only the paper's figures need; see `reproduction.plan.chain`."""

from __future__ import annotations

from reproduction.artifacts.labels import Damaged
from reproduction.evaluation.records import read_orders
from reproduction.evaluation.subsets import Subset, distinct_subsets
from reproduction.plan import chain
from reproduction.plan.chain import Seed, Tasks, pretrained_source
from reproduction.plan.node import Node, Spec, stage
from reproduction.plan.planner import Plan
from tallmasks import methods


@stage(version=3, uses="evaluation", ending="json")
def evaluate_thresholds(plan: Plan, model: str, tasks: Tasks, merge: str, seed: Seed) -> Spec:
    """Consensus merging with tuned alpha, at each threshold k from 0 to T + 1 that has no row of its own (figure 6)."""
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
    inputs = chain.evaluate(plan, model, tasks, consensus.name, seed).inputs
    return Spec(chain.slug_of_tasks(merge, tasks, seed), params, inputs, pretrained_source(plan, model))


@stage(version=2, uses="arrays", ending="json")
def task_orders(plan: Plan, model: str, tasks: Tasks) -> Spec:
    """The task orders of figure 5, from zero-shot accuracies."""
    inputs = {"zeroshot": [chain.evaluate_task(plan, model, task, "zeroshot", plan.seeds[0]) for task in tasks]}
    return Spec(f"{len(tasks)}tasks", {"tasks": list(tasks)}, inputs)


@stage(version=3, uses="evaluation", ending="json")
def evaluate_subset(plan: Plan, model: str, tasks: Tasks, seed: Seed) -> Spec:
    """Figure 5's methods on one set of tasks; merges and masks are computed in memory."""
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
    inputs = chain.evaluation_inputs(plan, model, tasks, seed)
    inputs["task_vectors"] = chain.task_vectors(plan, model, tasks, seed)
    return Spec(f"{len(tasks)}tasks-s{seed}", params, inputs, pretrained_source(plan, model))


def known_subsets(plan: Plan, model: str, benchmark: str) -> list[tuple[Subset, Node]] | None:
    """Figure 5's distinct subsets of a benchmark; None before the task orders are computed."""
    try:
        ordered, _ = read_orders(plan.root / task_orders(plan, model, plan.members(plan.tasks(model, benchmark))).path)
    except (FileNotFoundError, Damaged):
        return None
    chosen = {order: ordered[order] for order in plan.subset_orders}
    return [(subset, evaluate_subset(plan, model, subset.tasks, plan.seeds[0])) for subset in distinct_subsets(chosen)]


def subset_evaluations(plan: Plan, model: str, benchmark: str) -> dict[str, list[Node]] | None:
    """The evaluations of `known_subsets`, by role; None before the task orders are computed."""
    subsets = known_subsets(plan, model, benchmark)
    return None if subsets is None else {"subsets": [node for _, node in subsets]}
