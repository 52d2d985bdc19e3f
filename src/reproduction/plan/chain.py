"""The stages from examples to evaluations: the inputs and parameters of each artifact."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduction.models.checkpoint_sources import FINETUNE, locate, source_of
from reproduction.models.families import (
    HEAD,
    STATISTICS,
    counts_frozen,
    family,
    heads_from_examples,
    statistics_of,
    trains_heads,
)
from reproduction.plan import preflight
from reproduction.plan.node import Declaration, Node, Stage, stage
from reproduction.plan.settings import Plan
from reproduction.plugins import outside_code
from reproduction.tasks.catalogues import CATALOGUES, catalogue
from reproduction.training.controlled import Controlled
from tallmasks import methods
from tallmasks.errors import TallmasksError
from tallmasks.methods.inputs import AGREEMENT, MASK, MULTI_TASK_VECTOR, TASK_VECTOR, Input
from tallmasks.methods.merges import FISHER, GRAMS, LEARNED, Statistic
from tallmasks.methods.options import Value

Seed = int | Controlled
"""Seed of a fine-tuning; in the controlled experiment also the weights that it may change."""
Tasks = tuple[str, ...]
STATISTICS_EXAMPLES = 256
"""Default number of examples for a task's statistics, as in the code of MergeLM and FusionBench."""
CHECKPOINTS = "store/{model}/checkpoints/{stage}"


def slug_of_tasks(name: str, tasks: Tasks, seed: Seed) -> str:
    return f"{methods.slug(name)}-{len(tasks)}tasks-s{seed}"


# -- models and tasks -----------------------------------------------------------------------------------------


@stage(
    version=2,
    folder="store/data/{model}/{stage}",
    uses="cpu",
    missing=lambda node: catalogue(node.model).missing(node.params),
)
def examples(plan: Plan, model: str, task: str, split: str) -> Declaration:
    """One split of one task, shared by all models that use the same examples."""
    spec = plan.model(model)
    source = catalogue(spec["tasks"])
    recipe = source.recipe(plan.params, spec, task, split, plan.root)
    code = outside_code(spec["tasks"], CATALOGUES)
    params = {**recipe.params, **({"catalogue_code": code} if code else {})}
    return Declaration(f"{task}-{split}", params, sources=recipe.sources, owner=spec["tasks"])


@stage(version=2, folder=CHECKPOINTS, uses="cpu", missing=preflight.missing_file)
def pretrained(plan: Plan, model: str) -> Declaration:
    """Pretrained weights, converted to the project's format."""
    weights = plan.model(model)["pretrained"]
    if isinstance(weights, str):
        return Declaration("pretrained", plan.architecture(model), sources={"weights": plan.named_path(weights)})
    return Declaration("pretrained", {**plan.architecture(model), "pretrained": dict(weights)})


def pretrained_source(plan: Plan, model: str) -> dict[str, Path | Node]:
    """The pretrained weights: the user's file if it is in the project's format, otherwise the converted artifact."""
    weights = plan.model(model)["pretrained"]
    if isinstance(weights, str) and weights.endswith(".safetensors"):
        return {"pretrained": plan.named_path(weights)}
    return {"pretrained": pretrained(plan, model)}


@stage(version=2, folder="store/{model}/{stage}", uses="one_task")
def head(plan: Plan, model: str, task: str, seed: Seed = 0) -> Declaration:
    """The classification head of one task: frozen and made from class names or training examples, or trained with the
    task's checkpoint."""
    spec = plan.model(model)
    if trains_heads(spec):
        inputs = {finetune.role: [finetune(plan, model, task, seed)]}
        return Declaration(f"{task}-s{seed}", {"family": spec["family"], "task": task}, inputs)
    if heads_from_examples(spec):
        params = {**plan.network(model), "classes": list(plan.catalogue_of(model)[task].classes)}
        inputs = {"examples": [examples(plan, model, task, "train")]}
        return Declaration(task, params, inputs, pretrained_source(plan, model))
    wording = spec.get("wording", {})
    if not isinstance(wording, str):
        wording = wording.get(task, source_of(spec.get("checkpoints", FINETUNE), task))
    prompts = plan.catalogue_of(model)[task].worded_for(wording)
    params = {**plan.architecture(model), "classes": list(prompts.classes), "templates": list(prompts.templates)}
    return Declaration(task, params, sources=pretrained_source(plan, model))


def task_inputs(plan: Plan, model: str, tasks: Iterable[str], seed: Seed, plural: str = "") -> dict[str, list[Node]]:
    """The inputs that the model's family needs for tasks besides their examples (CLIP: the heads), by role."""
    spec = plan.model(model)
    seeds = (seed,) if trains_heads(spec) else ()  # otherwise they are the same for every seed
    return {
        f"{role}{plural}": [STAGE_OF[role](plan, model, task, *seeds) for task in tasks]
        for role in family(spec).task_inputs
    }


def new_head(plan: Plan, model: str, task: str) -> dict[str, Any]:
    """The part of a checkpoint's recipe for the head that is trained with it; empty for frozen heads."""
    return {"classes": list(plan.catalogue_of(model)[task].classes)} if trains_heads(plan.model(model)) else {}


@stage(version=3, folder=CHECKPOINTS, uses="finetuning", role="checkpoint")
def finetune(plan: Plan, model: str, task: str, seed: Seed) -> Declaration | Node:
    """The trainable tensors after fine-tuning on one task; imported if params.yaml names a source of checkpoints."""
    spec = plan.model(model)
    publishers = family(spec).publishers
    origin = locate(spec.get("checkpoints", FINETUNE), spec["architecture"], task, publishers, plan.root)
    if origin and not isinstance(seed, Controlled):
        return import_checkpoint(plan, model, task, origin)
    validates = "validate_every" in spec["finetuning"]
    settings = family(spec).training_settings(spec, plan.catalogue_of(model)[task], validates)
    params = {**plan.architecture(model), **settings, "finetuning": dict(spec["finetuning"]), "task": task}
    params |= new_head(plan, model, task)
    params |= {"seed": seed.seed, "partition": seed.partition(task)} if isinstance(seed, Controlled) else {"seed": seed}
    inputs = {"examples": [examples(plan, model, task, "train")]}
    if not trains_heads(spec):
        inputs |= task_inputs(plan, model, [task], seed)
    if validates:
        inputs["validation"] = [examples(plan, model, task, "validation")]
    return Declaration(f"{task}-s{seed}", params, inputs, pretrained_source(plan, model))


@stage(version=3, folder=CHECKPOINTS, uses="cpu", missing=preflight.missing_file)
def import_checkpoint(plan: Plan, model: str, task: str, origin: Any) -> Declaration:
    """The trainable tensors of a downloaded or local checkpoint, the same for every seed."""
    params = {**plan.architecture(model), "task": task, "checkpoint": origin.recipe, **new_head(plan, model, task)}
    sources = pretrained_source(plan, model) | ({"weights": origin.local} if origin.local else {})
    return Declaration(task, params, sources=sources)


# -- statistics of a task's data ------------------------------------------------------------------------------


@stage(version=1, uses="evaluation", role="statistics")
def statistic(plan: Plan, model: str, task: str, seed: Seed, needed: Statistic) -> Declaration:
    """One of `STATISTICS`, computed with the fine-tuned model on some of its training examples.

    Raises TallmasksError if the model's family cannot compute it.
    """
    _check_statistic(plan, model, needed)
    count = int(plan.params.get("statistics", {}).get("examples", STATISTICS_EXAMPLES))
    params = {**plan.network(model), "statistic": needed.name, "task": task, "count": count}
    inputs = {
        "examples": [examples(plan, model, task, "train")],
        **task_inputs(plan, model, [task], seed),
        finetune.role: [finetune(plan, model, task, seed)],
    }
    return Declaration(f"{needed.name}-{task}-s{seed}", params, inputs, pretrained_source(plan, model))


def _check_statistic(plan: Plan, model: str, needed: Statistic) -> None:
    if needed not in statistics_of(plan.model(model)):
        raise TallmasksError(
            f"params.yaml: models.{model}: {STATISTICS[needed]}; leave out methods that need it: "
            f"{', '.join(methods.needing(needed))}"
        )


@stage(version=1, uses="evaluation", joint=True, role="statistics")
def learn(plan: Plan, model: str, tasks: Tasks, merge_name: str, seed: Seed) -> Declaration:
    """What a merge learns from the task vectors and unlabelled validation examples of all tasks.

    Raises TallmasksError if the model's family does not support it.
    """
    _check_statistic(plan, model, LEARNED)
    learning = methods.get_merge(merge_name).learning
    params = {**plan.network(model), "tasks": list(tasks), "merge": learning, "code": methods.code(merges=[learning])}
    inputs = {
        **task_inputs(plan, model, tasks, seed, "s"),
        "validation": [examples(plan, model, task, "validation") for task in tasks],
        task_vector.role: task_vectors(plan, model, tasks, seed),
    }
    return Declaration(slug_of_tasks(learning, tasks, seed), params, inputs, pretrained_source(plan, model))


# -- vectors, masks, consensus --------------------------------------------------------------------------------


FRACTIONS = (0.1, 0.2)
"""What magnitude masking and TIES keep. Trim thresholds for other fractions are computed when a merge needs them."""


@stage(version=3, uses="cpu", role="task_vectors")
def task_vector(plan: Plan, model: str, task: str, seed: Seed) -> Declaration:
    """The task vector, with exact trim thresholds."""
    params = {**plan.architecture(model), "fractions": list(FRACTIONS)}
    params["fractions_of"] = plan.params["kept_fractions_of"] if counts_frozen(plan.model(model)) else "trainable"
    inputs = {finetune.role: [finetune(plan, model, task, seed)]}
    return Declaration(f"{task}-s{seed}", params, inputs, pretrained_source(plan, model))


def task_vectors(plan: Plan, model: str, tasks: Iterable[str], seed: Seed) -> list[Node]:
    return [task_vector(plan, model, task, seed) for task in tasks]


@stage(version=2, uses="cpu", joint=True, role="multi_task_vector")
def merge(plan: Plan, model: str, tasks: Tasks, merge_name: str, seed: Seed) -> Declaration:
    """The multi-task vector; some merges also read statistics of the tasks' data."""
    inputs = {task_vector.role: task_vectors(plan, model, tasks, seed)}
    row = methods.get_merge(merge_name)
    if row.statistics:
        inputs[statistic.role] = artifacts_with(plan, row.statistics, model, tasks, merge_name, seed, row.values)
    params = {"merge": merge_name, "code": methods.code(merges=[merge_name])}
    return Declaration(slug_of_tasks(merge_name, tasks, seed), params, inputs)


@stage(version=2, uses="cpu", joint=True, role="mask_bundle")
def mask(plan: Plan, model: str, tasks: Tasks, merge_name: str, seed: Seed) -> Declaration:
    """The masks of all tasks, for every lambda of the grid."""
    params = {"tasks": list(tasks), "mask_lambda": list(plan.grids(model)["mask_lambda"])}
    inputs = {
        task_vector.role: task_vectors(plan, model, tasks, seed),
        merge.role: [merge(plan, model, tasks, merge_name, seed)],
    }
    return Declaration(slug_of_tasks(merge_name, tasks, seed), params, inputs)


def masking_inputs(plan: Plan, model: str, tasks: Tasks, method: str, seed: Seed) -> dict[str, Iterable[Node]]:
    """A masking method's multi-task vector, its masks, and the evaluation that selects one mask per task."""
    merge_name = str(methods.get(method).merge)
    return {
        merge.role: [merge(plan, model, tasks, merge_name, seed)],
        mask.role: [mask(plan, model, tasks, merge_name, seed)],
        evaluate.role: [evaluate(plan, model, tasks, method, seed)],
    }


@stage(version=2, uses="cpu", joint=True, role="agreement")
def consensus(plan: Plan, model: str, tasks: Tasks, merge_name: str, seed: Seed) -> Declaration:
    """The number of tasks whose TALL-mask keeps each weight, with the lambdas that the TALL-mask row selected."""
    inputs = masking_inputs(plan, model, tasks, methods.masking(merge_name).name, seed)
    return Declaration(slug_of_tasks(merge_name, tasks, seed), {"tasks": list(tasks)}, inputs)


# -- the stage behind each thing that a method, a merge or a family needs --------------------------------------

STAGE_OF: dict[Input | Statistic | str, Stage[Any]] = {
    HEAD: head,
    GRAMS: statistic,
    FISHER: statistic,
    LEARNED: learn,
    TASK_VECTOR: task_vector,
    MULTI_TASK_VECTOR: merge,
    MASK: mask,
    AGREEMENT: consensus,
}
"""Inputs that are not listed are computed from others."""


def artifacts_with(
    plan: Plan,
    needed: Input | Statistic,
    model: str,
    tasks: Tasks,
    merge_name: str | None,
    seed: Seed,
    options: Mapping[str, Value],
) -> list[Node]:
    """The artifacts of the stage in `STAGE_OF`: one if the stage is joint, else one per task.

    ``options``: those of the merge or method that needs them; keyword-only parameters of the stage get their values.
    """
    if needed not in STAGE_OF:
        raise TallmasksError(f"no stage makes {needed.name}; add it to STAGE_OF in reproduction/plan/chain.py")
    made_by = STAGE_OF[needed]
    if isinstance(needed, Statistic) and made_by is statistic:
        return [statistic(plan, model, task, seed, needed) for task in tasks]
    chosen = {name: options[name] for name in made_by.options if name in options}
    if made_by.joint:
        return [made_by(plan, model, tasks, merge_name, seed, **chosen)]
    return [made_by(plan, model, task, seed, **chosen) for task in tasks]


def files_by_input(files: Mapping[str, Sequence[Path]]) -> dict[Input, Sequence[Path]]:
    """A job's files, given by role, by the input of a method that they contain."""
    return {one: files[stage.role] for one, stage in STAGE_OF.items() if isinstance(one, Input) and stage.role in files}


# -- evaluations ----------------------------------------------------------------------------------------------


@stage(version=3, uses="one_task", ending="json")
def evaluate_task(plan: Plan, model: str, task: str, method: str, seed: Seed) -> Declaration:
    """One task's accuracy under a method that uses no other task; shared by all benchmarks with the task."""
    inputs: dict[str, Iterable[Node]] = {
        **task_inputs(plan, model, [task], seed),
        "validation": [examples(plan, model, task, "validation")],
        "test": [examples(plan, model, task, "test")],
    }
    name = f"{methods.slug(method)}-{task}"
    if isinstance(methods.get(method).usage, methods.FineTuned):
        inputs[finetune.role] = [finetune(plan, model, task, seed)]
        name += f"-s{seed}"
    params = {**plan.evaluator(model), "method": method, "code": methods.code([method]), "task": task}
    return Declaration(name, params, inputs, pretrained_source(plan, model))


def evaluation_data(plan: Plan, model: str, tasks: Tasks, seed: Seed) -> dict[str, Iterable[Node]]:
    """Validation and test examples, and the tasks' other inputs."""
    return {
        **task_inputs(plan, model, tasks, seed, "s"),
        "validation": [examples(plan, model, task, "validation") for task in tasks],
        "test": [examples(plan, model, task, "test") for task in tasks],
    }


def evaluation_inputs(plan: Plan, model: str, tasks: Tasks, seed: Seed) -> dict[str, Iterable[Node]]:
    """`evaluation_data`, and the evaluations of the fine-tuned models."""
    return {
        **evaluation_data(plan, model, tasks, seed),
        "fine_tuned": [evaluate_task(plan, model, task, "fine_tuned", seed) for task in tasks],
    }


def method_inputs(plan: Plan, model: str, tasks: Tasks, method: str, seed: Seed) -> dict[str, Iterable[Node]]:
    """The artifacts that a method is computed from."""
    chosen = methods.get(method)
    if chosen.tuned:  # it merges again for every value
        return {task_vector.role: task_vectors(plan, model, tasks, seed)}
    return {
        STAGE_OF[needed].role: artifacts_with(plan, needed, model, tasks, chosen.merge, seed, chosen.values)
        for needed in chosen.all_inputs.values()
        if needed in STAGE_OF
    }


@stage(version=3, uses="evaluation", ending="json", role="selection")
def evaluate(plan: Plan, model: str, tasks: Tasks, method: str, seed: Seed, sweep: str | None = None) -> Declaration:
    """One method with every coefficient of its grid on validation data, and the best one on test data.

    ``sweep``: a key of the model's `sweeps` in params.yaml, for an evaluation on a sample of the examples.
    """
    chosen = methods.get(method)
    inputs = evaluation_inputs(plan, model, tasks, seed) | method_inputs(plan, model, tasks, method, seed)
    params: dict[str, Any] = {
        **plan.evaluator(model),
        "method": method,
        "code": methods.code([method], [str(chosen.merge)] if chosen.tuned else []),
        "tasks": list(tasks),
    }
    if images := plan.sweep_images(model, sweep):
        params["images"] = images
    if grid := chosen.usage.grid(plan.grids(model)):
        params["grid"] = list(grid)
        if isinstance(chosen.usage, methods.Scaled) and not (images or chosen.tuned or grid[0]):  # alpha = 0
            inputs["zero_shot"] = [evaluate_task(plan, model, task, "zeroshot", seed) for task in tasks]
    return Declaration(slug_of_tasks(method, tasks, seed), params, inputs, pretrained_source(plan, model))


@stage(version=1, uses="evaluation", ending="json")
def evaluate_unseen(plan: Plan, model: str, merged: Tasks, tasks: Tasks, method: str, seed: Seed) -> Declaration:
    """The merged model of some tasks, evaluated on others, with the coefficient chosen on the merged tasks."""
    chosen = evaluate(plan, model, merged, method, seed)
    inputs = evaluation_data(plan, model, tasks, seed) | method_inputs(plan, model, merged, method, seed)
    inputs[evaluate.role] = [chosen]
    params = {**plan.evaluator(model), **{key: chosen.params[key] for key in ("method", "code")}}
    params |= {"merged": list(merged), "tasks": list(tasks)}
    return Declaration(slug_of_tasks(method, tasks, seed), params, inputs, pretrained_source(plan, model))


@stage(version=1, uses="evaluation", ending="json")
def evaluate_first_tasks(plan: Plan, model: str, tasks: Tasks, order: str, n: int, seed: Seed) -> Declaration:
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
        **evaluation_inputs(plan, model, tasks, seed),
        "zero_shot": [evaluate_task(plan, model, task, "zeroshot", seed) for task in tasks],
        task_vector.role: task_vectors(plan, model, tasks, seed),
    }
    return Declaration(f"{order}-{n}of{len(tasks)}tasks-s{seed}", params, inputs, pretrained_source(plan, model))


@stage(version=7, uses="cpu")
def bundle_archive(plan: Plan, model: str, tasks: Tasks, method: str, seed: Seed) -> Declaration:
    """The models of a masking row, or of a method with a codec, as a bundle on top of the pretrained file."""
    (theta0,) = pretrained_source(plan, model).values()
    base = theta0.path if isinstance(theta0, Node) else os.path.relpath(theta0, plan.root)
    params = {**plan.architecture(model), "method": method, "tasks": list(tasks), "base": base}
    if methods.get(method).codec:
        params["code"] = methods.code([method])
        inputs: dict[str, Iterable[Node]] = {task_vector.role: task_vectors(plan, model, tasks, seed)}
    else:
        inputs = masking_inputs(plan, model, tasks, method, seed)
    return Declaration(slug_of_tasks(method, tasks, seed), params, inputs, pretrained_source(plan, model))
