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
from reproduction.plan import preflight
from reproduction.plan.node import Node
from reproduction.plan.project import Files, closure, open_plan
from reproduction.plan.settings import Plan
from tallmasks.errors import OptionError, TallmasksError, counted, option_errors
from tallmasks.io import hub
from tallmasks.io.atomic_files import atomic_write_text

WIDTH = 110  # characters per problem if all models are listed, so that the output fits on 24 lines
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
        details = list[str]()
        found = problems(plan, model, nodes, details, downloads)
        printed = list(found if arguments.targets else islice(found, 1))
        stopped |= bool(printed)
        print(f"{target}: {'cannot be run as it is' if printed else 'ready'}")
        if arguments.targets:
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
    details: list[str],
    commands: dict[str, None],
) -> Iterator[str]:
    """Yield the problems that keep a target from running on this machine, the cheapest checks first.

    Appends what the artifacts need to ``details``. If the hub does not answer, adds the commands that download the
    missing files to ``commands``.
    """
    if isinstance(nodes, TallmasksError):
        yield str(nodes)
        return
    missing = [node for node in Files(plan.root).missing(nodes) if not node.stage.is_result]
    details.append(f"{len(nodes) - len(missing)} of {len(nodes)} artifacts exist")
    if not missing:
        return
    details.append(f"to build: {_kinds(missing)}")
    on_gpu = [node for node in missing if plan.resources(model, node.stage.uses)["gpu"]]
    if on_gpu:
        if problem := _gpu_problem(max(plan.resources(model, node.stage.uses)["gpu"] for node in on_gpu)):
            yield problem
        details.append(f"{counted(len(on_gpu), 'job')} on a GPU: {_kinds(on_gpu)}")
    yield from preflight.unavailable(node for node in missing if preflight.wanted_by(node) is None)
    wanted = preflight.downloads(missing)
    if wanted:
        details.append(f"{_repositories(len(wanted))} to download")
    if wanted and hub.reachable():
        yield from preflight.refused(wanted)
    elif wanted:
        commands.update(dict.fromkeys(one.command for one in wanted))
        yield (
            f"not in this machine's hub cache, and the hub does not answer: {_repositories(len(wanted))}. Run "
            f"`sh {DOWNLOADS}` on a machine with a network and copy its cache here (HF_HOME is the location), or name "
            "local folders in params.yaml (data.TASK.path)"
        )


def _kinds(nodes: list[Node]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(node.kind for node in nodes).items())


def _repositories(count: int) -> str:
    return f"{count} {'repository' if count == 1 else 'repositories'}"


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


def _hub_cache() -> Path:
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE).resolve()
    return next(path for path in (folder, *folder.parents) if path.exists())
