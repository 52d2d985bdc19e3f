"""Say what this machine can run of params.yaml, before anybody spends an hour.

    tallmasks doctor
    tallmasks doctor vit_b32 t5_large

Looks at Python, PyTorch and the GPU driver, at memory and disk, and at the data sets and weights that the models'
benchmarks need: which of them the hub's cache has, how much is to be downloaded, and whether the hub answers.  The exit
status is 1 if a model cannot be run as it is; each problem says what to do.
"""

from __future__ import annotations

import argparse
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tallmasks.models import cuda
from tallmasks.models.families import family
from tallmasks.plan import preflight
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import Store, open_plan
from tallmasks.store import hub
from tallmasks.store.errors import TallmasksError, nearest

SHOWN = 2  # problems of a model that nobody named
STATE = 16  # bytes a trainable value takes while training: weight, gradient, both moments of AdamW


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of params.yaml; all by default")


def run(arguments: argparse.Namespace) -> int:
    """Print the answers; 1 if a model cannot be run as it is."""
    plan = open_plan()
    if wrong := [name for name in arguments.models if name not in plan.models]:
        raise TallmasksError(f"params.yaml has no model {wrong[0]}{nearest(wrong[0], plan.models)}")
    print("\n".join(of_machine(plan.root)))
    healthy = True
    for model in arguments.models or plan.models:
        report = of_model(plan, model)
        healthy = healthy and not report.problems
        print(f"{model}: {'ready' if not report.problems else 'cannot be run as it is'}")
        shown = report.problems if arguments.models else report.problems[:SHOWN]
        if more := len(report.problems) - len(shown):
            shown.append(f"{more} more: `tallmasks doctor {model}`")
        print("\n".join(f"    {line}" for line in [*report.facts, *(f"- {text}" for text in shown)]))
    return 0 if healthy else 1


def of_machine(root: Path) -> Iterator[str]:
    """The lines on what all models share."""
    names = ("torch", "transformers", "open_clip_torch", "snakemake", "dvc")
    yield f"Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)}"
    devices = ", ".join(device.name for device in cuda.usable())
    yield f"GPUs: {devices or 'none'}; the driver knows CUDA up to {cuda.driver() or '- (there is none)'}"
    for what, place in (("this folder", root), ("the hub's cache", _hub_cache())):
        yield f"disk for {what}: {shutil.disk_usage(place).free / 1e9:.0f} GB free ({place.resolve()})"
    yield f"the hub {'answers' if hub.reachable() else 'does not answer'}"


@dataclass
class Report:
    """What there is to say of one model: facts, and what keeps it from running."""

    facts: list[str]
    problems: list[str]


def of_model(plan: Plan, model: str) -> Report:
    """What a model's benchmarks need, and what of it this machine lacks."""
    try:
        nodes = plan.index.closure(model)
    except TallmasksError as error:  # a file that params.yaml names is not there
        return Report([], [str(error)])
    missing = Store(plan.root).missing(nodes)
    report = Report([f"{len(nodes) - len(missing)} of {len(nodes)} artifacts of its benchmarks are there"], [])
    _look_at_gpus(plan, model, report)
    _look_at_sources(missing, report)
    return report


def _look_at_gpus(plan: Plan, model: str, report: Report) -> None:
    wanted = max(plan.resources(model, uses)["gpu"] for uses in ("evaluation", "finetuning"))
    if not wanted:
        return
    spec = plan.model(model)
    trainable, frozen = family(spec).architecture_counts(spec)
    state = (STATE * trainable + 4 * frozen) / 1e9
    report.facts.append(
        f"fine-tuning takes {state:.1f} GB of GPU memory, and activations (docs/gpu.md, docs/language.md)"
    )
    try:
        devices = cuda.enough(wanted)
        if why := cuda.refusal(cuda.elsewhere(",".join(device.uuid for device in devices))):
            report.problems.append(why)
    except TallmasksError as error:
        report.problems.append(str(error))


def _look_at_sources(missing: list[Node], report: Report) -> None:
    """What is to be downloaded, and what cannot be."""
    wanted = preflight.downloads(missing)
    if wanted and hub.reachable():
        try:
            size, free = preflight.bytes_of(wanted), shutil.disk_usage(_hub_cache()).free
            report.facts.append(f"{len(wanted)} repositories to download, {size / 1e9:.3g} GB")
            if size > free:
                report.problems.append(
                    f"{size / 1e9:.3g} GB to download, and {free / 1e9:.3g} GB free in the hub's cache; make room, or "
                    "set HF_HOME to a folder on a larger disk"
                )
        except TallmasksError:
            report.problems.extend(preflight.refusals(wanted))
    elif wanted:
        report.facts.append(f"{len(wanted)} repositories to download")
    report.problems.extend(preflight.unavailable(missing))


def _hub_cache() -> Path:
    """The hub's cache, or the folder that it will be made in."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    return next(folder for folder in (cache, *cache.parents) if folder.exists())
