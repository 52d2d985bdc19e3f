"""The stage that only figure 5 needs; see `reproduction.plan.chain`."""

from __future__ import annotations

from reproduction.plan import chain
from reproduction.plan.chain import Seed, Tasks, pretrained_source
from reproduction.plan.node import Spec, stage
from reproduction.plan.planner import Plan
from tallmasks import methods


@stage(version=1, uses="evaluation", ending="json")
def evaluate_first_tasks(plan: Plan, model: str, tasks: Tasks, order: str, n: int, seed: Seed) -> Spec:
    """Figure 5's methods on the first n of the tasks in an order; merges and masks are computed in memory.

    The order can follow from zero-shot accuracies, which only the job knows, so the inputs are those of all tasks.
    """
    names = plan.params["paper"]["subsets"]["methods"]
    merges = sorted({merge for name in names if (merge := methods.get(name).merge)})
    params = {
        **plan.evaluator(model),
        "tasks": list(tasks),
        "order": order,
        "n": n,
        "images": plan.sweep_images(model, "subsets"),
        "methods": list(names),
        "code": methods.code(names, merges),
        "grids": {name: list(grid) for name, grid in plan.grids(model).items()},
    }
    inputs = {
        **chain.evaluation_inputs(plan, model, tasks, seed),
        "zero_shot": [chain.evaluate_task(plan, model, task, "zeroshot", seed) for task in tasks],
        "task_vectors": chain.task_vectors(plan, model, tasks, seed),
    }
    return Spec(f"{order}-{n}of{len(tasks)}tasks-s{seed}", params, inputs, pretrained_source(plan, model))
