"""The stages of the chain, from examples to evaluations: what each artifact is made from.

A stage is called with the plan and what its artifact is of, and gives the artifact (`tallmasks.plan.node.Stage`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tallmasks import methods
from tallmasks.errors import TallmasksError, nearest
from tallmasks.methods.merges import LEARNED
from tallmasks.models.checkpoint_sources import FINETUNE, locate, source_of
from tallmasks.models.families import STATISTICS, counts_frozen, family, statistics_of
from tallmasks.plan import preflight
from tallmasks.plan.node import STAGES, Made, Node, stage
from tallmasks.plan.planner import Plan
from tallmasks.plugins import outside_code
from tallmasks.tasks.catalogues import CATALOGUES, catalogue
from tallmasks.training.controlled import Controlled

Seed = int | Controlled
"""Of a fine-tuning; in the controlled experiment also which weights it may change."""
Tasks = tuple[str, ...]
Namer = methods.Merge | methods.Method
STATISTICS_EXAMPLES = 256
"""Examples behind a task's statistics, unless params.yaml says otherwise; as in the code of MergeLM and FusionBench."""
CHECKPOINTS = "store/{model}/checkpoints/{stage}"
"""The folder of what costs the most."""


def slug_of_tasks(name: str, tasks: Tasks, seed: Seed) -> str:
    """The name of an artifact of a set of tasks."""
    return f"{methods.slug(name)}-{len(tasks)}tasks-s{seed}"


# -- models and tasks -----------------------------------------------------------------------------------------


@stage(
    version=2,
    folder="store/data/{model}/{stage}",
    uses="arrays",
    missing=lambda node: catalogue(node.model).missing(node.params),
)
def examples(plan: Plan, model: str, task: str, split: str) -> Made:
    """One split of one task, shared by all models with the same examples."""
    spec = plan.model(model)
    made = catalogue(spec["tasks"]).recipe(plan.params, spec, task, split, plan.root)
    code = outside_code(spec["tasks"], CATALOGUES)
    params = {**made.params, **({"catalogue_code": code} if code else {})}
    return Made(f"{task}-{split}", params, sources=made.sources, owner=spec["tasks"])


@stage(version=2, folder=CHECKPOINTS, uses="arrays", missing=preflight.missing_file)
def pretrained(plan: Plan, model: str) -> Made:
    """Pretrained weights of another format, converted once."""
    named = plan.model(model)["pretrained"]
    if isinstance(named, str):
        return Made("pretrained", plan.architecture(model), sources={"weights": plan.named_path(named)})
    return Made("pretrained", {**plan.architecture(model), "pretrained": dict(named)})


def pretrained_source(plan: Plan, model: str) -> dict[str, Path | Node]:
    """A model's pretrained weights by role: a file in the project's format, or the converted artifact."""
    named = plan.model(model)["pretrained"]
    if isinstance(named, str) and named.endswith(".safetensors"):
        return {"pretrained": plan.named_path(named)}
    return {"pretrained": pretrained(plan, model)}


@stage(version=2, folder="store/{model}/{stage}", uses="one_task")
def head(plan: Plan, model: str, task: str) -> Made:
    """The frozen zero-shot classification head of one task."""
    spec = plan.model(model)
    wording, source = spec.get("wording", {}), source_of(spec.get("checkpoints", FINETUNE), task)
    chosen = wording if isinstance(wording, str) else wording.get(task, source)
    prompts = plan.catalogue_of(model)[task].worded_for(chosen)
    params = {**plan.architecture(model), "classes": list(prompts.classes), "templates": list(prompts.templates)}
    return Made(task, params, sources=pretrained_source(plan, model))


def task_inputs(plan: Plan, model: str, task: str) -> dict[str, list[Node]]:
    """A task's inputs beside its examples, by role, as the model's family needs them."""
    return {role: [STAGES[stage](plan, model, task)] for role, stage in family(plan.model(model)).task_inputs.items()}


def inputs_of_tasks(plan: Plan, model: str, tasks: Iterable[str]) -> dict[str, list[Node]]:
    """The same for several tasks, each role in the plural."""
    stages = family(plan.model(model)).task_inputs
    return {f"{role}s": [STAGES[stage](plan, model, task) for task in tasks] for role, stage in stages.items()}


@stage(version=3, folder=CHECKPOINTS, uses="finetuning")
def finetune(plan: Plan, model: str, task: str, seed: Seed) -> Made | Node:
    """The trainable tensors after fine-tuning on one task, here or by somebody else."""
    spec = plan.model(model)
    publishers = family(spec).publishers
    elsewhere = locate(spec.get("checkpoints", FINETUNE), spec["architecture"], task, publishers, plan.root)
    if elsewhere and not isinstance(seed, Controlled):
        return import_checkpoint(plan, model, task, elsewhere)
    looks = "validate_every" in spec["finetuning"]
    settings = family(spec).training_settings(spec, plan.catalogue_of(model)[task], looks)
    params = {**plan.architecture(model), **settings, "finetuning": dict(spec["finetuning"]), "task": task}
    params |= {"seed": seed.seed, "partition": seed.partition(task)} if isinstance(seed, Controlled) else {"seed": seed}
    inputs = {"examples": [examples(plan, model, task, "train")], **task_inputs(plan, model, task)}
    if looks:
        inputs["validation"] = [examples(plan, model, task, "validation")]
    return Made(f"{task}-s{seed}", params, inputs, pretrained_source(plan, model))


@stage(version=3, folder=CHECKPOINTS, uses="arrays", missing=preflight.missing_file)
def import_checkpoint(plan: Plan, model: str, task: str, origin: Any) -> Made:
    """The trainable tensors of somebody else's checkpoint, the same for every seed."""
    params = {**plan.architecture(model), "task": task, "checkpoint": origin.recipe}
    sources = pretrained_source(plan, model) | ({"weights": origin.local} if origin.local else {})
    return Made(task, params, sources=sources)


# -- statistics of a task's data ------------------------------------------------------------------------------


def statistic_from(plan: Plan, model: str, task: str, seed: Seed, statistic: str) -> Made:
    """A statistic of a fine-tuned checkpoint on some of its training examples.

    Raises TallmasksError where the model's family cannot compute it.
    """
    _check_statistic(plan, model, statistic)
    count = int(plan.params.get("statistics", {}).get("examples", STATISTICS_EXAMPLES))
    params = {**plan.network(model), "task": task, "count": count}
    inputs = {
        "examples": [examples(plan, model, task, "train")],
        **task_inputs(plan, model, task),
        "checkpoint": [finetune(plan, model, task, seed)],
    }
    return Made(f"{task}-s{seed}", params, inputs, pretrained_source(plan, model))


def _check_statistic(plan: Plan, model: str, statistic: str) -> None:
    if statistic not in statistics_of(plan.model(model)):
        raise TallmasksError(
            f"params.yaml: models.{model}: {STATISTICS[statistic]}; leave out methods that need it: "
            f"{', '.join(methods.needing(statistic))}"
        )


@stage(version=1, uses="evaluation")
def grams(plan: Plan, model: str, task: str, seed: Seed) -> Made:
    """The second moments of each linear layer's inputs in the fine-tuned network, for RegMean."""
    return statistic_from(plan, model, task, seed, "grams")


@stage(version=1, uses="evaluation")
def fisher(plan: Plan, model: str, task: str, seed: Seed) -> Made:
    """The squared gradients of the fine-tuned network's log-probabilities, for Fisher merging."""
    return statistic_from(plan, model, task, seed, "fisher")


@stage(version=1, uses="evaluation", joint=True)
def learn(plan: Plan, model: str, tasks: Tasks, merge_name: str, seed: Seed) -> Made:
    """What a merge learns from all tasks at once: their task vectors, and validation examples without labels.

    Raises TallmasksError where the model's family cannot.
    """
    _check_statistic(plan, model, LEARNED)
    learning = methods.get_merge(merge_name).learning
    params = {**plan.network(model), "tasks": list(tasks), "merge": learning, "code": methods.code(merges=[learning])}
    inputs = {
        **inputs_of_tasks(plan, model, tasks),
        "validation": [examples(plan, model, task, "validation") for task in tasks],
        "task_vectors": task_vectors(plan, model, tasks, seed),
    }
    return Made(slug_of_tasks(learning, tasks, seed), params, inputs, pretrained_source(plan, model))


# -- vectors, masks, consensus --------------------------------------------------------------------------------


def artifacts_of(plan: Plan, stage: str, model: str, tasks: Tasks, seed: Seed, namer: Namer) -> list[Node]:
    """The artifacts of a stage that a merge or a method names: one of all tasks if it is joint, else one a task.

    Its function gets those options of the merge or the method that are its keyword-only parameters.
    """
    if stage not in STAGES:
        raise TallmasksError(f"there is no stage {stage!r}{nearest(stage, STAGES)}; see plan/chain.py")
    values = {name: option.default for name, option in namer.options.items()} | dict(namer.chosen)
    options = {name: values[name] for name in STAGES[stage].options if name in values}
    if STAGES[stage].joint:
        merge_name = namer.merge if isinstance(namer, methods.Method) else namer.name
        return [STAGES[stage](plan, model, tasks, merge_name, seed, **options)]
    return [STAGES[stage](plan, model, task, seed, **options) for task in tasks]


@stage(version=3, uses="arrays")
def task_vector(plan: Plan, model: str, task: str, seed: Seed) -> Made:
    """What fine-tuning changed, with the exact trim thresholds of the fractions that methods keep by default."""
    params = {**plan.architecture(model), "fractions": list(methods.kept_fractions())}
    params["fractions_of"] = plan.params["kept_fractions_of"] if counts_frozen(plan.model(model)) else "trainable"
    inputs = {"checkpoint": [finetune(plan, model, task, seed)]}
    return Made(f"{task}-s{seed}", params, inputs, pretrained_source(plan, model))


def task_vectors(plan: Plan, model: str, tasks: Iterable[str], seed: Seed) -> list[Node]:
    """The task vectors of some tasks."""
    return [task_vector(plan, model, task, seed) for task in tasks]


@stage(version=2, uses="arrays", joint=True)
def merge(plan: Plan, model: str, tasks: Tasks, merge_name: str, seed: Seed) -> Made:
    """The task vectors of a set of tasks, merged; with statistics of their data if the merge needs them."""
    inputs = {"task_vectors": task_vectors(plan, model, tasks, seed)}
    merging = methods.get_merge(merge_name)
    if merging.statistics:
        inputs["statistics"] = artifacts_of(plan, merging.statistics, model, tasks, seed, merging)
    params = {"merge": merge_name, "code": methods.code(merges=[merge_name])}
    return Made(slug_of_tasks(merge_name, tasks, seed), params, inputs)


@stage(version=2, uses="arrays", joint=True)
def mask(plan: Plan, model: str, tasks: Tasks, merge_name: str, seed: Seed) -> Made:
    """The masks of every task for every lambda of the grid."""
    params = {"tasks": list(tasks), "mask_lambda": list(plan.grids(model)["mask_lambda"])}
    inputs = {
        "task_vectors": task_vectors(plan, model, tasks, seed),
        "multi_task_vector": [merge(plan, model, tasks, merge_name, seed)],
    }
    return Made(slug_of_tasks(merge_name, tasks, seed), params, inputs)


def masking_inputs(plan: Plan, model: str, tasks: Tasks, method: str, seed: Seed) -> dict[str, Iterable[Node]]:
    """A masking method's merged vector, its masks, and the evaluation that selects among them."""
    merge_name = str(methods.get(method).merge)
    return {
        "multi_task_vector": [merge(plan, model, tasks, merge_name, seed)],
        "mask_bundle": [mask(plan, model, tasks, merge_name, seed)],
        "selection": [evaluate(plan, model, tasks, method, seed)],
    }


@stage(version=2, uses="arrays", joint=True)
def consensus(plan: Plan, model: str, tasks: Tasks, merge_name: str, seed: Seed) -> Made:
    """How many tasks' selected masks hold each weight; the selection is that of the TALL-mask method."""
    inputs = masking_inputs(plan, model, tasks, methods.masking(merge_name).name, seed)
    return Made(slug_of_tasks(merge_name, tasks, seed), {"tasks": list(tasks)}, inputs)


# -- evaluations ----------------------------------------------------------------------------------------------


@stage(version=3, uses="one_task", ending="json")
def evaluate_task(plan: Plan, model: str, task: str, method: str, seed: Seed) -> Made:
    """One task's accuracy under a method that looks at no other task; every benchmark with the task shares it."""
    inputs: dict[str, Iterable[Node]] = {
        **task_inputs(plan, model, task),
        "validation": [examples(plan, model, task, "validation")],
        "test": [examples(plan, model, task, "test")],
    }
    name = f"{methods.slug(method)}-{task}"
    if isinstance(methods.get(method).protocol, methods.FineTuned):
        inputs["checkpoint"] = [finetune(plan, model, task, seed)]
        name += f"-s{seed}"
    params = {**plan.evaluator(model), "method": method, "code": methods.code([method]), "task": task}
    return Made(name, params, inputs, pretrained_source(plan, model))


def evaluation_data(plan: Plan, model: str, tasks: Tasks) -> dict[str, Iterable[Node]]:
    """Validation data to choose by, test data, and the tasks' other inputs."""
    return {
        **inputs_of_tasks(plan, model, tasks),
        "validation": [examples(plan, model, task, "validation") for task in tasks],
        "test": [examples(plan, model, task, "test") for task in tasks],
    }


def evaluation_inputs(plan: Plan, model: str, tasks: Tasks, seed: Seed) -> dict[str, Iterable[Node]]:
    """What every evaluation on a set of tasks reads."""
    return {
        **evaluation_data(plan, model, tasks),
        "fine_tuned": [evaluate_task(plan, model, task, "fine_tuned", seed) for task in tasks],
    }


def method_inputs(plan: Plan, model: str, tasks: Tasks, method: str, seed: Seed) -> dict[str, Iterable[Node]]:
    """The artifacts that a method is computed from."""
    chosen = methods.get(method)
    if chosen.tuned:  # merges anew for every value
        return {"task_vectors": task_vectors(plan, model, tasks, seed)}
    return {
        needed.role: artifacts_of(plan, str(needed.stage), model, tasks, seed, chosen)
        for needed in chosen.stored_inputs
    }


@stage(version=3, uses="evaluation", ending="json")
def evaluate(plan: Plan, model: str, tasks: Tasks, method: str, seed: Seed) -> Made:
    """Every coefficient of one method on every task's validation data, and the best one on the test data."""
    chosen = methods.get(method)
    inputs = evaluation_inputs(plan, model, tasks, seed) | method_inputs(plan, model, tasks, method, seed)
    params: dict[str, Any] = {
        **plan.evaluator(model),
        "method": method,
        "code": methods.code([method], [str(chosen.merge)] if chosen.tuned else []),
        "tasks": list(tasks),
    }
    if grid := chosen.protocol.grid(plan.grids(model)):
        params["grid"] = list(grid)
        if isinstance(chosen.protocol, methods.Scaled) and not (chosen.tuned or grid[0]):  # alpha = 0
            inputs["zero_shot"] = [evaluate_task(plan, model, task, "zeroshot", seed) for task in tasks]
    return Made(slug_of_tasks(method, tasks, seed), params, inputs, pretrained_source(plan, model))


@stage(version=1, uses="evaluation", ending="json")
def evaluate_unseen(plan: Plan, model: str, merged: Tasks, tasks: Tasks, method: str, seed: Seed) -> Made:
    """The merged model of some tasks, as their validation data chose it, on other tasks."""
    chosen = evaluate(plan, model, merged, method, seed)
    inputs = evaluation_data(plan, model, tasks) | method_inputs(plan, model, merged, method, seed)
    inputs["selection"] = [chosen]
    params = {**plan.evaluator(model), **{key: chosen.params[key] for key in ("method", "code")}}
    params |= {"merged": list(merged), "tasks": list(tasks)}
    return Made(slug_of_tasks(method, tasks, seed), params, inputs, pretrained_source(plan, model))


@stage(version=2, uses="arrays")
def bundle_archive(plan: Plan, model: str, tasks: Tasks, method: str, seed: Seed) -> Made:
    """The models of a masking row, or of a method with own tensors, as a bundle; its base is the pretrained file."""
    (theta0,) = pretrained_source(plan, model).values()
    base = theta0.path if isinstance(theta0, Node) else os.path.relpath(theta0, plan.root)
    params = {**plan.architecture(model), "method": method, "tasks": list(tasks), "base": base}
    if methods.get(method).own_tensors:
        params["code"] = methods.code([method])
        inputs: dict[str, Iterable[Node]] = {"task_vectors": task_vectors(plan, model, tasks, seed)}
    else:
        inputs = masking_inputs(plan, model, tasks, method, seed)
    return Made(slug_of_tasks(method, tasks, seed), params, inputs, pretrained_source(plan, model))
