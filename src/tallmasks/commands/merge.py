"""Merge fine-tuned models of one base into one model.

    tallmasks merge --base ./base --task cars=./cars --task dtd=./dtd --method task_arithmetic -o ./merged
    tallmasks merge --base org/base --task a=org/a --task b=org/b@v2 --method consensus_ties --k 2 \\
        --mask-lambda 0.4 --mask-lambda b=0.3 --option keep=0.1 --scaling-coefficient 0.5 -o ./merged
    tallmasks merge --base ./base --task cars=./cars --task dtd=./dtd --method ties --density 0.5 --trim tensor \\
        --weight cars=0.7 --weight dtd=0.3 -o ./merged
    tallmasks merge merge.yaml
    tallmasks merge ./merged/merge.yaml -o ./again

A checkpoint is a safetensors file, a transformers folder, a state dict of torch.save, or a PEFT LoRA folder.  It may
also be a repository of the hub, or one task's model of a bundle, ./bundle#cars.  The merged model has the base's
layout, its tokenizer and configuration, a model card and a recipe.  It appears whole or not at all.  Code is not
copied, nor what links lead to outside of the folder.  The recipe, merge.yaml, makes the same model again and refuses
other inputs.  Memory does not grow with the models: they are read a piece at a time.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tallmasks.commands import given_checkpoints
from tallmasks.commands.merge_recipes import CARD, RECIPE, card_of_merged, recipe_of
from tallmasks.commands.opened_models import Models, opened, passes, say_copied
from tallmasks.errors import TallmasksError, warn
from tallmasks.io.dtypes import DTYPES, FLOATS
from tallmasks.io.tensor_files import name_some
from tallmasks.methods import Fixed, Method, Scaled, TensorPiece, registry
from tallmasks.methods.descriptions import block_count, uses_small_directions
from tallmasks.methods.merges import pieces_of, pieces_of_layout
from tallmasks.methods.streaming import Merging, OnePiece, in_stream
from tallmasks.methods.updates import Updates
from tallmasks.methods.weighting import TRIMS, Weighting
from tallmasks.parallel import parallel
from tallmasks.vectors import kernels
from tallmasks.vectors.checkpoints.lora_folders import LoraCheckpoint
from tallmasks.vectors.checkpoints.new_files import tensors_file
from tallmasks.vectors.checkpoints.writing import bytes_of_new, new_checkpoint

if TYPE_CHECKING:
    from tallmasks.commands.models_file import Given

_DTYPES = [DTYPES[code].torch for code in FLOATS]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given_checkpoints.add_arguments(parser, None, method_names(), _DTYPES)
    parser.add_argument("--scaling-coefficient", type=float, help="alpha; else what the method's paper recommends")
    parser.add_argument("--k", type=int, help="of a consensus: how many tasks' masks must hold a weight; 2")
    by_task: dict[str, Any] = {"action": "append", "default": [], "metavar": "[NAME=]VALUE"}
    parser.add_argument(
        "--weight", **by_task, help="the factor of a task vector, 1. If you set one, the default of alpha is 1"
    )
    parser.add_argument("--density", **by_task, help="the share of its weights that a task keeps, of TIES, DARE, ...")
    parser.add_argument(
        "--trim", choices=TRIMS, help="TIES keeps its share of the whole model, or of each tensor as mergekit does"
    )
    parser.add_argument(
        "--normalize", action=argparse.BooleanOptionalAction, help="divide by the weights; as the method does without"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="merge only tensors of such names, 'model.layers.*'; others are the base's",
    )
    parser.add_argument(
        "--heads",
        nargs="*",
        metavar="PATTERN",
        help="do not merge tensors of such names, nor those of other shapes. The merged model has the base's."
        " heads/NAME.safetensors has the task's",
    )
    parser.add_argument(
        "--tokens",
        choices=["base", "union"],
        help="for vocabularies that grew: keep the base's tokens, or those of all models. Needs each tokenizer.json",
    )
    parser.add_argument("--out-shard-size", metavar="SIZE", help="of a folder's weight files, 5GB; else as the base's")


def run(arguments: argparse.Namespace) -> int:
    """Merge, and print where the result is."""
    given = given_checkpoints.read_settings(arguments, None, _DTYPES)
    method, alpha, weighting, models = _prepared(given)
    what = f"by {method.title}, alpha = {alpha:g}"
    if arguments.dry_run:
        size = bytes_of_new(given.output, models.base, given.dtype, given.out_shard_size)
        models.describe(f"merge {what}", size)
        return 0
    _write(method, alpha, weighting, models)
    count = len(given.tasks)
    print(f"{given.output}: {count} model{'s' * (count > 1)} merged {what}")
    say_copied(models.base)
    models.say_buffers()
    if heads := sorted({name for names in models.apart.heads.values() for name in names}):
        print(f"  not merged, each task's own in heads/: {name_some(heads)}")
    return 0


def merge_checkpoints(
    base: str | PathLike[str] | None,
    tasks: Mapping[str, str | PathLike[str]],
    method: str,
    out: str | PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    scaling_coefficient: float | None = None,
    k: int | None = None,
    mask_lambda: float | Mapping[str, float] | None = None,
    weight: float | Mapping[str, float] | None = None,
    density: float | Mapping[str, float] | None = None,
    trim: str | None = None,
    normalize: bool | None = None,
    dtype: Any = None,
    out_shard_size: int | str | None = None,
    only: Sequence[str] | None = None,
    keep_base: Sequence[str] | None = None,
    heads: Sequence[str] | bool | None = None,
    tokens: str | None = None,
) -> Path:
    """What `tallmasks merge` does, under the same names: merge checkpoints of one base into one, and say where it is.

    Args:
        base: a file, a folder, or a repository `org/name@revision`; None for weight_averaging alone.
        tasks: the same of fine-tuned models, by task.
        method: `tallmasks.method_names()` lists them.
        out: a new file or folder.
        options: of the method, {"keep": 0.1}.
        mask_lambda, weight, density: for every task, or by task.
        only, keep_base, heads: patterns of tensors' names; True for the heads that have other shapes.

    The other arguments are the command's options.  Raises TallmasksError as the command does.
    """
    settings = {name: value for name, value in locals().items() if name not in ("base", "tasks", "out")}
    given = given_checkpoints.from_python(base, tasks, out, _DTYPES, **settings)
    _write(*_prepared(given))
    return given.output


def method_names(command: Literal["merge", "compress"] = "merge") -> tuple[str, ...]:
    """What `merge_checkpoints` takes, or `compress`, as ``method``, in the order of the tables."""
    if command == "compress":
        return registry.names_with_masks()
    return tuple(
        name
        for name in registry.names()
        if _is_a_merge(registry.get(name)) and not registry.statistics_behind(registry.get(name))
    )


def _prepared(given: Given) -> tuple[Method, float, Weighting, Models]:
    """What is done (see `merging_method`), and models that fit."""
    given.lacks(("include_base",), "compress")
    method, alpha, weighting = merging_method(given)
    models = opened(given)
    loras = [name for name, checkpoint in models.tasks.items() if isinstance(checkpoint, LoraCheckpoint)]
    if loras and uses_small_directions(registry.get_merge(str(method.merge))):
        warn(
            f"{name_some(loras)}: a LoRA. {method.title} depends on small directions, which an adapter loses if it is"
            " merged into bfloat16 first: that may give a quite different model"
        )
    _warn_of_few(method, len(models.tasks))
    blocks = block_count(models.base.layout.names)
    if given.layers not in (None, blocks):
        raise TallmasksError(f"layers: found {given.layers}, and the base has {blocks}; models are merged whole")
    return method, alpha, weighting, models


def _warn_of_few(method: Method, count: int) -> None:
    """Warn of one model alone, and of a consensus of all."""
    if count == 1:
        warn("there is one model, and nothing to merge it with: give another by --task")
    elif count == method.k:
        warn(f"{method.title} keeps only what all {count} masks hold: take --k 1, a method without masks or more tasks")


def _write(method: Method, alpha: float, weighting: Weighting, models: Models) -> None:
    """Merge piece by piece into the new file or folder."""
    given, lambdas = models.given, models.given.lambdas
    more: dict[str, str | bytes] = {}
    if models.apart.heads and not models.base.is_folder:
        raise TallmasksError("--heads: one file has no place for them; give the base as a folder")
    if models.base.is_folder:
        recipe = recipe_of(method, alpha, weighting, models)
        more = {RECIPE: recipe, CARD: card_of_merged(method, alpha, models, recipe), **_heads(models)}
    with models.progress("merging", passes(method.merge)) as progress:
        stream = models.stream(progress)
        merging = Merging(registry.get_merge(str(method.merge)), stream, weighting)
        with new_checkpoint(given.output, models.base, None, given.dtype, given.out_shard_size, more) as new:

            def work(piece: TensorPiece) -> None:
                source = OnePiece(stream, piece, merging, lambdas)
                change = np.float32(alpha) * Updates(method, source)()
                new.write(piece.name, piece.start, source.pretrained + change)

            parallel(work, pieces_of_layout(stream.layout, merging.over_tensors), merging.threads)
            sizes = {name: models.part.info(name).size for name in models.part.averages if models.moves(name)}
            parallel(
                lambda piece: new.write(piece.name, piece.start, models.mean(piece)), pieces_of(sizes, kernels.PIECE)
            )


def _heads(models: Models) -> dict[str, bytes]:
    """The file of each task's own tensors, by name."""
    if not models.apart.heads:
        return {}
    from tallmasks.bundles.manifest import task_files  # whose libraries take long to import

    files = task_files(models.apart.heads, "heads/")
    return {files[task]: tensors_file(models.tasks[task], names) for task, names in models.apart.heads.items()}


def merging_method(given: Given) -> tuple[Method, float, Weighting]:
    """The row of the table that is meant, with its options and k; alpha; and how the tasks count.

    Raises TallmasksError where there is no such method or option, it does not merge into one, or a setting is not its.
    """
    registry.check_name(given.method, method_names())
    method = registry.get(given.spec)
    if not _is_a_merge(method):
        compress = given.method in registry.names_with_masks()
        hint = "that is for `tallmasks compress`" if compress else f"expected {', '.join(method_names())}"
        raise TallmasksError(f"--method {given.method} does not merge models into one; {hint}")
    in_stream(method)
    if given.k is not None:
        if "agreement" not in method.needs or not isinstance(method.update, functools.partial):
            raise TallmasksError(f"--k is for a consensus; {given.method} has none")
        if not 0 <= given.k <= len(given.tasks):
            raise TallmasksError(f"--k {given.k}: expected a number of tasks, 0 to {len(given.tasks)}")
        method = replace(method, update=functools.partial(method.update.func, k=given.k))
    if weighting := given.weighting:
        weighting.check(str(method.merge), f"--method {given.method}")
    if isinstance(method.protocol, Fixed):
        own = method.protocol.coefficient_for(len(given.tasks))
        if given.scaling_coefficient is not None:
            raise TallmasksError(f"--scaling-coefficient: {given.method} has its own, {own:g}; leave it out")
        if weighting.normalize is False:
            raise TallmasksError(f"normalize: {given.method} is a mean, divided by the sum of weights; leave it out")
        return (method, 1.0, replace(weighting, normalize=True)) if weighting else (method, own, weighting)
    assert isinstance(method.protocol, Scaled)
    without = 1.0 if weighting.weights else method.protocol.unvalidated
    return method, without if given.scaling_coefficient is None else given.scaling_coefficient, weighting


def _is_a_merge(method: Method) -> bool:
    """Whether a method gives one model."""
    return method.section == "merging" and method.merge is not None
