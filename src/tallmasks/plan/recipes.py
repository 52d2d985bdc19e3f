"""The recipes of results, and the versions of all stages, of the store and of the results."""

from __future__ import annotations

from typing import Any

from tallmasks.artifacts.labels import digest_of
from tallmasks.errors import TallmasksError, nearest
from tallmasks.models.checkpoint_sources import FINETUNE, source_of
from tallmasks.plan import chain, figure_views  # noqa: F401  (declares the other views and stages)
from tallmasks.plan.drawings import DRAWINGS, Drawing
from tallmasks.plan.node import STAGES, Node, Stage, sha256_of_source
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import VIEWS, View
from tallmasks.results import figures
from tallmasks.results.paper import PUBLISHED, published_name


def stage_versions() -> dict[str, int]:
    """The version of every stage, view and kind of drawing, by name."""
    every: list[Stage[Any] | View | Drawing] = [*STAGES.values(), *VIEWS.values(), *DRAWINGS.values()]
    return {one.name: one.version for one in every}


def version_of(kind: str) -> int | None:
    """The version of the stage that a recipe's `kind` names; None where there is none."""
    return stage_versions().get(kind.removesuffix("_view"))


def of_view(plan: Plan, view: View, model: str, benchmark: str) -> dict[str, Any]:
    """The recipe of a view.  Raises TallmasksError for several seeds of imported checkpoints, which have none."""
    tasks, seeds, spec = plan.tasks_for(model, benchmark), view.seeds_of(plan), plan.model(model)
    if len(seeds) > 1 and any(source_of(spec.get("checkpoints", FINETUNE), task) != FINETUNE for task in tasks):
        raise TallmasksError(
            f"results/{model}/{benchmark}/{view.name}: checkpoints that were imported have no seeds; it needs "
            f"`checkpoints: {FINETUNE}` in params.yaml"
        )
    if why := view.refused(plan.benchmark(benchmark)):
        raise TallmasksError(f"results/{model}/{benchmark}/{view.name}: {why}")
    artifacts = view.artifacts(plan, model, benchmark)
    recipe = {
        "kind": f"{view.name}_view",
        "version": view.version,
        "params": {
            "model": model,
            "benchmark": benchmark,
            "tasks": list(tasks),
            **view.params(plan, model, benchmark),
            "seeds": list(seeds),
            **plan.architecture(model),
        },
        "inputs": {role: [node.digest for node in nodes] for role, nodes in artifacts.items()},
        "sources": {
            role: source.digest if isinstance(source, Node) else sha256_of_source(source)
            for role, source in chain.pretrained_source(plan, model).items()
        },
    }
    return {**recipe, "digest": digest_of(recipe)}


def of_drawing(plan: Plan, drawing: Drawing, model: str, name: str) -> dict[str, Any]:
    """The recipe of one figure, or of one of the paper's tables.

    Raises TallmasksError where the model has all tasks of none of `paper.benchmarks`.
    """
    drawn = drawing.known[name]
    if unknown := [view for view in drawn.views if view not in VIEWS]:
        raise TallmasksError(f"{drawing.name} {name}: there is no view {unknown[0]!r}{nearest(unknown[0], VIEWS)}")
    shown = figures.in_scope(drawn.scope, plan.paper_benchmarks(model))
    if not shown:
        able = plan.benchmarks(model)
        raise TallmasksError(
            f"results/{model}/{drawing.folder}/{name}: paper.benchmarks in params.yaml names no benchmark whose tasks "
            f"{model} has; it has those of {', '.join(able) or 'none'}"
        )
    published = published_name(plan.model(model))
    is_compared = published or model in PUBLISHED.values()
    recipe = {
        "kind": drawing.name,
        "version": drawing.version,
        "params": {
            "model": model,
            "name": name,
            "benchmarks": [[benchmark, list(tasks)] for benchmark, tasks in shown.items()],
            **({"published": published} if published != model and is_compared else {}),
        },
        "inputs": {
            f"{benchmark}/{view}": [of_view(plan, VIEWS[view], model, benchmark)["digest"]]
            for benchmark in shown
            for view in drawn.views
        },
    }
    return {**recipe, "digest": digest_of(recipe)}
