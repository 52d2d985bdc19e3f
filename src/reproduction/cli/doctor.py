"""Check whether this machine can run the models of params.yaml.

    tallmasks doctor
    tallmasks doctor vit_b32 t5_large
    tallmasks doctor results/vit_b32/20tasks/table.csv

Checks Python, PyTorch, the GPUs, the disk and the hub. For a named model or file of results/ it also counts the jobs,
and the data sets and weights to download; without names, it prints only the first problem of each model. The exit
status is 1 if one of them cannot run. Each problem says what to do.

If the hub does not answer, .tallmasks/downloads.sh is written, with the `hf download` commands of the missing files.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path

from reproduction.artifacts.folders import RESULTS, SCRATCH
from reproduction.cli.why import nearest_target, results_with
from reproduction.models import cuda
from reproduction.models.families import family
from reproduction.plan import preflight
from reproduction.plan.chain import pretrained_source, task_vector
from reproduction.plan.node import Node
from reproduction.plan.project import Files, closure, open_plan
from reproduction.plan.settings import Plan
from reproduction.tasks.catalogues import catalogue
from tallmasks.errors import OptionError, TallmasksError, counted, option_errors
from tallmasks.io import hub
from tallmasks.io.atomic_files import atomic_write_text
from tallmasks.vectors.checkpoints.opening import open_checkpoint

WIDTH = 110  # characters per problem if all models are listed, so that the output fits on 24 lines
FLOAT = 4  # bytes per value
DOWNLOADS = SCRATCH / "downloads.sh"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "model of params.yaml or file of results/ (default: all models)"
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=what)


def run(arguments: argparse.Namespace) -> int:
    plan = open_plan()
    asked = [(target, *behind(plan, target)) for target in arguments.targets or plan.models]
    libraries = ("torch", "transformers", "open_clip_torch", "snakemake", "dvc")
    print(f"Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in libraries)}")
    print(f"GPUs: {', '.join(cuda.usable()) or 'none'}")
    for what, folder in (("this folder", plan.root), ("the hub's cache", _hub_cache())):
        print(f"disk for {what}: {shutil.disk_usage(folder).free / 1e9:.0f} GB free ({folder.resolve()})")
    print(f"the hub {'answers' if hub.reachable() else 'does not answer'}")
    stopped, downloads = False, dict[str, None]()
    for target, model, nodes in asked:
        details = list[str]() if arguments.targets else None
        found = problems(plan, model, nodes, details, downloads)
        printed = list(found if arguments.targets else islice(found, 1))
        stopped |= bool(printed)
        print(f"{target}: {'cannot be run as it is' if printed else 'ready'}")
        if details is not None:
            print("\n".join(f"    {line}" for line in [*details, *(f"- {text}" for text in printed)]))
        elif printed:
            print(f"    - {textwrap.shorten(printed[0], WIDTH, placeholder=' ...')}")
    if downloads:
        atomic_write_text(DOWNLOADS, "".join(f"{command}\n" for command in downloads))
    if not arguments.targets:
        print("`tallmasks doctor MODEL` shows all details and problems of a model.")
    return int(stopped)


def behind(plan: Plan, target: str) -> tuple[str, list[Node] | TallmasksError]:
    """The model of a target and the artifacts behind it, or the error of a missing file that params.yaml names.

    Raises OptionError for a target that is neither a model nor a file that a rule writes.
    """
    folder = Path(target)
    if folder.parts[:1] == (RESULTS.name,) and len(folder.parts) > 2:
        with option_errors():
            behind = results_with(plan, folder).walk()
        return folder.parts[1], [node for node in behind if not node.stage.is_result]
    if target not in plan.models:
        raise OptionError(f"params.yaml has no model {target}{nearest_target(plan, target, plan.models)}")
    try:
        return target, closure(plan, target)
    except TallmasksError as error:
        return target, error


def problems(
    plan: Plan,
    model: str,
    nodes: list[Node] | TallmasksError,
    details: list[str] | None,
    commands: dict[str, None],
) -> Iterator[str]:
    """Yield the problems that keep a target from running on this machine, the cheapest checks first.

    Appends what the artifacts need to ``details``, which takes longer; None skips that. If the hub does not answer,
    adds the commands that download the missing files to ``commands``.
    """
    if isinstance(nodes, TallmasksError):
        yield str(nodes)
        return
    missing = [node for node in Files(plan.root).missing(nodes) if not node.stage.is_result]
    if details is not None and not missing:
        details.append(f"all {counted(len(nodes), 'artifact')} exist")
    elif details is not None:
        details.append(f"{len(nodes) - len(missing)} of {len(nodes)} artifacts exist; to build: {_kinds(missing)}")
    if not missing:
        return
    on_gpu = [node for node in missing if plan.resources(model, node.stage.uses)["gpu"]]
    if on_gpu:
        if problem := _gpu_problem(max(plan.resources(model, node.stage.uses)["gpu"] for node in on_gpu)):
            yield problem
        if details is not None:
            details.append(f"{counted(len(on_gpu), 'job')} on a GPU: {_kinds(on_gpu)}")
    yield from (absent := preflight.unavailable(node for node in missing if preflight.wanted_by(node) is None))
    # what has to be installed can also bring the weights
    size, wanted = 0, preflight.downloads(node for node in missing if not (absent and preflight.local_folder(node)))
    if wanted and hub.reachable():
        size, refused = preflight.bytes_of(wanted)
        yield from refused
    elif wanted:
        commands.update(dict.fromkeys(one.command for one in wanted))
        yield (
            f"not in this machine's hub cache, and the hub does not answer: {_repositories(len(wanted))}. Run "
            f"`sh {DOWNLOADS}` on a machine with a network and copy its cache here (HF_HOME is the location), or name "
            "local folders in params.yaml (data.TASK.path)"
        )
    if wanted and details is not None:
        details.append(f"{_repositories(len(wanted))} to download{f', {size / 1e9:.3g} GB' if size else ''}")
    yield from _disk_problems(plan, model, missing, size, details)


def _kinds(nodes: list[Node]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(node.kind for node in nodes).items())


def _repositories(count: int) -> str:
    return f"{count} {'repository' if count == 1 else 'repositories'}"


def _parameters(plan: Plan, model: str) -> tuple[int, int]:
    """Trainable and frozen parameters, from the file of pretrained weights if possible: open_clip is slow to import."""
    spec, (source,) = plan.model(model), pretrained_source(plan, model).values()
    if isinstance(source, Path):
        return family(spec).parameter_counts(spec, open_checkpoint(source).shapes)
    return family(spec).architecture_counts(spec)


def bytes_made(plan: Plan, model: str, missing: list[Node]) -> dict[str, float]:
    """Estimated bytes of missing artifacts by kind, from the architecture.

    Catalogues without `example_bytes` are not counted. Each running training keeps its last save and the one that
    replaces it.
    """
    spec = plan.model(model)
    trainable, frozen = _parameters(plan, model)
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
            stored += levels * len(node.inputs[task_vector.role]) * trainable
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


def _gpu_problem(count: int) -> str | None:
    if not cuda.usable():  # torch, which is slow to import, would say the same
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "NVIDIA's driver lists none" if visible is None else f"CUDA_VISIBLE_DEVICES is {visible!r}"
        return f"there is no GPU ({why}); use a machine with one, or {cuda.ON_A_CPU}"
    try:
        cuda.require_gpus(count)
    except TallmasksError as error:
        return str(error)
    return None


def _disk_problems(
    plan: Plan, model: str, missing: list[Node], downloads: int, details: list[str] | None
) -> Iterator[str]:
    made = bytes_made(plan, model, missing)
    parts = ", ".join(f"{size / 1e9:.3g} GB of {what}" for what, size in made.items() if size)
    if parts and details is not None:
        details.append(f"to write: {parts}")
    needed = [(_existing(plan.root / "store"), sum(made.values())), (_hub_cache(), downloads)]
    for disk in dict.fromkeys(folder.stat().st_dev for folder, _ in needed):
        folders, sizes = zip(*(each for each in needed if each[0].stat().st_dev == disk), strict=True)
        size, free = sum(sizes), shutil.disk_usage(folders[0]).free
        if size > free:
            yield (
                f"{size / 1e9:.3g} GB to write or download, but {free / 1e9:.3g} GB free on the disk of "
                f"{' and '.join(map(str, folders))}; "
                "free some space, build fewer benchmarks (docs/store.md), or set HF_HOME to a folder on another disk"
            )


def _hub_cache() -> Path:
    from huggingface_hub import constants

    return _existing(Path(constants.HF_HUB_CACHE))


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
