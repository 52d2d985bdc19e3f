"""Say what this machine can run of params.yaml, before anybody spends an hour.

    tallmasks doctor
    tallmasks doctor vit_b32 t5_large
    tallmasks doctor results/vit_b32/20tasks/table.csv

Checks Python, PyTorch, the GPUs and the disk.  Of a model's benchmarks, or of one file: the jobs, their GPU hours, the
data sets and weights that are to be downloaded, and whether the hub answers.  Without names it shows the first problem
of each model.  The exit status is 1 if one cannot be run as it is; each problem says what to do.

On a machine with a GPU the hours follow from some seconds of the model's own training and evaluation, with random
weights.  Without a GPU they follow from rates that were measured on an H100.  Decoding images comes on top.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import textwrap
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path

from tallmasks.artifacts.folders import RESULTS
from tallmasks.commands.gpu_rates import A100_FACTOR, START_SECONDS, Rates, measured, rates_of_an_h100
from tallmasks.commands.why import results_with
from tallmasks.errors import TallmasksError, nearest
from tallmasks.io import hub
from tallmasks.models import cuda
from tallmasks.models.families import family
from tallmasks.plan import preflight
from tallmasks.plan.index import closure
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import Files, open_plan
from tallmasks.tasks.catalogues import catalogue

WIDTH = 110  # letters of a problem where all models are listed: the answer fits on a screen of 24 lines
FLOAT = 4  # bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "a model of params.yaml, or a file of results/; all models by default"
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=what)


def run(arguments: argparse.Namespace) -> int:
    """Print the answers; 1 if a target cannot be made as it is."""
    plan = open_plan()
    asked = [(target, *behind(plan, target)) for target in arguments.targets or plan.models]
    libraries = ("torch", "transformers", "open_clip_torch", "snakemake", "dvc")
    print(f"Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in libraries)}")
    print(f"GPUs: {', '.join(cuda.usable()) or 'none'}")
    for what, folder in (("this folder", plan.root), ("the hub's cache", _hub_cache())):
        print(f"disk for {what}: {shutil.disk_usage(folder).free / 1e9:.0f} GB free ({folder.resolve()})")
    print(f"the hub {'answers' if hub.reachable() else 'does not answer'}")
    stopped = False
    for target, model, nodes in asked:
        facts, problems = of_target(plan, model, nodes)
        stopped |= bool(problems)
        print(f"{target}: {'cannot be run as it is' if problems else 'ready'}")
        if arguments.targets:
            print("\n".join(f"    {line}" for line in [*facts, *(f"- {text}" for text in problems)]))
        elif problems:
            print(f"    - {textwrap.shorten(problems[0], WIDTH, placeholder=' ...')}")
    if not arguments.targets:
        print("`tallmasks doctor MODEL` says everything about a model: what fits, what is missing, what to do.")
    return int(stopped)


def behind(plan: Plan, target: str) -> tuple[str, list[Node] | TallmasksError]:
    """The model of a target and the artifacts behind it; the error where a file that params.yaml names is not there.

    Raises TallmasksError for what is neither a model nor written by a rule.
    """
    folder = Path(target)
    if folder.parts[:1] == (RESULTS.name,) and len(folder.parts) > 2:
        behind = results_with(plan, folder).walk()
        return folder.parts[1], [node for node in behind if not node.stage.is_result]
    if target not in plan.models:
        raise TallmasksError(f"params.yaml has no model {target}{nearest(target, plan.models)}")
    try:
        return target, closure(plan, target)
    except TallmasksError as error:
        return target, error


def of_target(plan: Plan, model: str, nodes: list[Node] | TallmasksError) -> tuple[list[str], list[str]]:
    """Facts of what the artifacts of a target need, and the problems that keep it from running on this machine."""
    if isinstance(nodes, TallmasksError):
        return [], [str(nodes)]
    missing = Files(plan.root).missing(nodes)
    facts, problems = [f"{len(nodes) - len(missing)} of {len(nodes)} artifacts are there; to be made:"], list[str]()
    if not missing:
        return [f"all {len(nodes)} artifacts are there"], []
    facts[0] += f" {', '.join(f'{count} {kind}' for kind, count in Counter(node.kind for node in missing).items())}"
    on_gpu = [node for node in missing if plan.resources(model, node.stage.uses)["gpu"]]
    if on_gpu:
        _look_at_gpus(plan, model, on_gpu, facts, problems)
    downloads = _look_at_sources(missing, facts, problems)
    _look_at_disks(plan, model, missing, downloads, facts, problems)
    return facts, problems


def gpu_hours(nodes: list[Node], rates: Rates) -> tuple[dict[str, float], set[str]]:
    """GPU hours of the jobs that make `nodes` by kind, and the kinds of which only the start of each job is counted."""
    hours, unknown = defaultdict[str, float](float), set[str]()
    for node in nodes:
        if node.kind == "finetune":
            settings = node.params["finetuning"]
            looks = settings["iterations"] // settings["validate_every"] if "validate_every" in settings else 0
            seconds = settings["iterations"] * settings["batch_size"] / rates.training
            seconds += looks * _count(node, "validation") / rates.evaluation
        elif node.kind in ("evaluate", "evaluate_task", "evaluate_unseen"):
            tried = max(1, len(node.params.get("grid", ()))) - ("zero_shot" in node.inputs)
            seconds = (tried * _count(node, "validation") + _count(node, "test")) / rates.evaluation
        else:
            unknown.add(node.kind)
            seconds = 0.0
        hours[node.kind] += (seconds + START_SECONDS) / 3600
    return hours, unknown


def _count(node: Node, role: str) -> int:
    """The examples in a role of a job's inputs."""
    return sum(catalogue(examples.model).count(examples.params) for examples in node.inputs.get(role, ()))  # type: ignore[attr-defined]


def bytes_made(plan: Plan, model: str, missing: list[Node]) -> dict[str, float]:
    """Bytes of what is missing of a model, from its architecture, by what it is for people.

    Examples are not counted of a catalogue that cannot.  Of each unfinished training that runs at once there are the
    last save and the one that replaces it.
    """
    spec = plan.model(model)
    trainable, frozen = family(spec).architecture_counts(spec)
    levels = len(plan.grids(model)["mask_lambda"]).bit_length() / 8
    examples = stored = 0.0
    for node in missing:
        if node.kind == "examples":
            examples += getattr(catalogue(node.model), "example_bytes", lambda recipe: 0)(node.params)
        elif node.kind == "pretrained":
            stored += FLOAT * (trainable + frozen)
        elif node.kind in ("finetune", "import_checkpoint", "task_vector", "merge"):
            stored += FLOAT * trainable
        elif node.kind == "mask":
            stored += levels * len(node.inputs["task_vectors"]) * trainable
        elif node.kind == "consensus":
            stored += trainable
    values = 4 if "validate_every" in spec["finetuning"] else 3  # weights, two moments, and the best weights
    at_once = max(1, len(cuda.usable()) // max(1, plan.resources(model, "finetuning")["gpu"]))
    at_once *= spec["resources"].get("jobs_per_gpu", 1)
    trainings = min(at_once, sum(node.kind == "finetune" for node in missing))
    return {
        "examples": examples,
        "checkpoints, vectors and masks": stored,
        "saves of unfinished trainings": 2 * FLOAT * values * trainable * trainings,
    }


def _look_at_gpus(plan: Plan, model: str, jobs: list[Node], facts: list[str], problems: list[str]) -> None:
    """GPU hours and memory of some jobs, and whether there are the GPUs."""
    facts.append(f"{len(jobs)} jobs on a GPU")
    spec, rates, source = plan.model(model), None, "measured here, with random weights"
    try:
        cuda.require_gpus(max(plan.resources(model, node.stage.uses)["gpu"] for node in jobs))
        rates = measured(spec, spec["finetuning"], plan.resources(model, "finetuning").get("micro_batch_size"))
    except TallmasksError as error:
        problems.append(str(error))
        rates = rates_of_an_h100(spec)
        source = f"measured on an H100; an A100 is taken to need {A100_FACTOR} times as long"
    if rates is None:
        facts.append("GPU hours: nobody measured this model; `tallmasks doctor` on a machine with a GPU does")
    else:
        hours, unknown = gpu_hours(jobs, rates)
        parts = ", ".join(f"{kind} {count:.2g}" for kind, count in hours.items())
        facts.append(
            f"{sum(hours.values()):.2g} GPU hours ({parts}), {START_SECONDS:.0f} s of each job's start included"
        )
        speeds = f"{rates.training:,.0f} {family(spec).unit}/s in training, {rates.evaluation:,.0f} in evaluation"
        facts.append(f"by {speeds}: {source}")
        if unknown:
            facts.append(f"counted by their start alone: {', '.join(sorted(unknown))}")
    trainable, frozen = family(plan.model(model)).architecture_counts(plan.model(model))
    held = FLOAT * (4 * trainable + frozen)
    facts.append(f"a fine-tuning holds at least {held / 1e9:.3g} GB of weights, gradients, moments; activations on top")


def _look_at_sources(missing: list[Node], facts: list[str], problems: list[str]) -> int:
    """What is to be downloaded, and what cannot be; the bytes of the downloads as far as the hub says them."""
    size, wanted = 0, preflight.downloads(missing)
    if wanted and hub.reachable():
        size, refused = preflight.bytes_of(wanted)
        problems.extend(refused)
    if wanted:
        facts.append(f"{len(wanted)} repositories to download{f', {size / 1e9:.3g} GB' if size else ''}")
    problems.extend(preflight.unavailable(missing))
    return size


def _look_at_disks(
    plan: Plan, model: str, missing: list[Node], downloads: int, facts: list[str], problems: list[str]
) -> None:
    """Whether each disk has room for all that is to be written there."""
    made = bytes_made(plan, model, missing)
    if parts := ", ".join(f"{size / 1e9:.3g} GB of {what}" for what, size in made.items() if size):
        facts.append(f"to be made: {parts}")
    needed = [(_existing(plan.root / "store"), sum(made.values())), (_hub_cache(), downloads)]
    for disk in dict.fromkeys(folder.stat().st_dev for folder, _ in needed):
        folders, sizes = zip(*(each for each in needed if each[0].stat().st_dev == disk), strict=True)
        size, free = sum(sizes), shutil.disk_usage(folders[0]).free
        if size > free:
            problems.append(
                f"{size / 1e9:.3g} GB to be made or downloaded, and {free / 1e9:.3g} GB free on the disk of "
                f"{' and '.join(map(str, folders))}; "
                "make room, build fewer benchmarks (docs/store.md), or set HF_HOME to a folder on another disk"
            )


def _hub_cache() -> Path:
    """The hub's cache, or the folder that it will be made in."""
    from huggingface_hub import constants

    return _existing(Path(constants.HF_HUB_CACHE))


def _existing(folder: Path) -> Path:
    """A folder, or the nearest one above it that there is."""
    return next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
