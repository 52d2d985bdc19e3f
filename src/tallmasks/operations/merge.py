"""Merge checkpoints of one base into one model, in pieces, so that memory use does not depend on model size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import OptionError, TallmasksError, name_some, option_errors, warn
from tallmasks.methods import Fixed, Method, Scaled, TensorPiece, registry
from tallmasks.methods.contract import MethodUpdates
from tallmasks.methods.merges import pieces_of, pieces_of_layout
from tallmasks.methods.options import parse_spec
from tallmasks.methods.rows.parts.block_numbers import block_of
from tallmasks.methods.streaming import PieceInputs, StreamedMerge, check_can_stream
from tallmasks.methods.weighting import Weighting
from tallmasks.operations.agreed_files import agreed_files, warn_of_files
from tallmasks.operations.as_lora import write_lora_of_merge
from tallmasks.operations.input_warnings import warn_of_configurations
from tallmasks.operations.merge_recipes import CARD, RECIPE, card_of_merged, config_beside, heads_files, recipe_of
from tallmasks.operations.opened_models import Models, open_models, passes
from tallmasks.operations.tensor_roles import Role
from tallmasks.parallel import parallel
from tallmasks.vectors import kernels
from tallmasks.vectors.checkpoints.folders import CONFIG
from tallmasks.vectors.checkpoints.planned_files import tensors_file
from tallmasks.vectors.checkpoints.stored_whole import is_small
from tallmasks.vectors.checkpoints.writing import new_checkpoint

if TYPE_CHECKING:
    from tallmasks.operations.merge_settings import Settings


def merge_checkpoints(
    base: str | PathLike[str] | None,
    tasks: Mapping[str, str | PathLike[str]],
    out: str | PathLike[str],
    *,
    method: str,
    options: Mapping[str, Any] | None = None,
    scaling_coefficient: float | None = None,
    mask_lambda: float | Mapping[str, float] | None = None,
    weight: float | Mapping[str, float] | None = None,
    density: float | Mapping[str, float] | None = None,
    trim: str | None = None,
    normalize: bool | None = None,
    dtype: Any = None,
    out_shard_size: int | str | None = None,
    as_lora: int | None = None,
    only: Sequence[str] | None = None,
    keep_base: Sequence[str] | None = None,
    heads: Sequence[str] | bool | None = None,
    tokens: str | None = None,
) -> Path:
    """Merge checkpoints of one base into one model, like `tallmasks merge`, and return its path.

    Args:
        base: a file, a folder, or a repository `org/name@revision`; may be None for weight_averaging.
        tasks: the fine-tuned checkpoints by task.
        out: a new file or folder.
        method: one of `tallmasks.method_names()`.
        options: options of the method, for example {"keep": 0.1}.
        mask_lambda, weight, density: one value, or a mapping by task.
        as_lora: write a LoRA of at most this rank instead of a whole model.
        only, keep_base, heads: patterns of tensor names; heads=True selects the tensors whose shapes differ.

    The other arguments are the command's options. Raises TallmasksError like the command.
    """
    from tallmasks.operations.merge_settings import from_python  # its libraries are slow to import

    settings = from_python(
        base,
        tasks,
        out,
        method=method,
        options=options,
        scaling_coefficient=scaling_coefficient,
        mask_lambda=mask_lambda,
        weight=weight,
        density=density,
        trim=trim,
        normalize=normalize,
        dtype=dtype,
        out_shard_size=out_shard_size,
        as_lora=as_lora,
        only=only,
        keep_base=keep_base,
        heads=heads,
        tokens=tokens,
    )
    write_merged(*prepare_merge(settings))
    return settings.output


def method_names(command: Literal["merge", "compress"] = "merge") -> tuple[str, ...]:
    """The methods of `merge_checkpoints` or `compress`, in the order of the tables.

    Raises TallmasksError for another command.
    """
    if command not in ("merge", "compress"):
        raise OptionError(f"command: found {command!r}, expected 'merge' or 'compress'")
    if command == "compress":
        return registry.names_with_masks()
    return tuple(
        name
        for name in registry.names()
        if _is_a_merge(registry.get(name)) and not registry.statistics_behind(registry.get(name))
    )


def prepare_merge(settings: Settings) -> tuple[Method, float, Weighting, Models]:
    with option_errors():
        method, scaling_coefficient, weighting = method_of(settings)
    models = open_models(settings)
    if models.heads and not models.base.is_folder:
        raise OptionError(
            f"heads: {models.base.title} is a single file, which cannot store heads; put it into a folder of its own,"
            " and give the folder as the base"
        )
    is_spectral = registry.get_merge(str(method.merge)).is_spectral
    if is_spectral and models.heads and settings.scaling_coefficient is None:
        warn(
            f"each task has its own head, so {method.title} can lose much accuracy with its default alpha, 1: choose"
            " scaling_coefficient on validation data, and compare with other methods"
        )
    blocks = 1 + max((block[1] for block in map(block_of, models.base.layout.names) if block), default=-1)
    if settings.layers not in (None, blocks):
        raise TallmasksError(
            f"layers: found {settings.layers}, but the base has {blocks}; only whole models are merged"
        )
    return method, scaling_coefficient, weighting, models


def write_merged(method: Method, scaling_coefficient: float, weighting: Weighting, models: Models) -> list[str]:
    """Write the merged model. Returns lines about it for people, if it is a LoRA."""
    if models.settings.as_lora is not None:
        heads = _heads(models) if len(models.tasks) > 1 else {}  # that of a single task is in the LoRA
        return write_lora_of_merge(method, scaling_coefficient, weighting, models, heads)
    settings, mask_lambdas = models.settings, models.settings.mask_lambdas
    more: dict[str, str | bytes] = {}
    if models.base.is_folder:
        recipe, heads = recipe_of(method, scaling_coefficient, weighting, models), _heads(models)
        more = {RECIPE: recipe, CARD: card_of_merged(method, scaling_coefficient, models, recipe, heads_files(models))}
        more |= heads
        more |= {name: file.content for name, file in agreed_files(models.base, models.tasks).items()}
    statistics: dict[str, str] = {}
    with models.progress("merging", passes(method.merge)) as progress:
        stream = models.stream(progress)
        merging = StreamedMerge(registry.get_merge(str(method.merge)), stream, weighting)
        with new_checkpoint(settings.output, models.base, None, settings.dtype, settings.out_shard_size, more) as new:

            def work(piece: TensorPiece) -> None:
                source = PieceInputs(stream, piece, merging, mask_lambdas)
                change = np.float32(scaling_coefficient) * MethodUpdates(method, source)()
                merged = source.pretrained + change
                new.write(piece.name, piece.start, merged)
                if is_small(models.base.info(piece.name).shape):
                    statistics.update(_lost_kinds(models, piece, merged))

            parallel(work, pieces_of_layout(stream.layout, merging.over_tensors), merging.threads)
            sizes = {name: models.base.info(name).size for name in models.roles.names(Role.AVERAGED)}

            def average(piece: TensorPiece) -> None:
                new.write(piece.name, piece.start, models.mean(piece, weighting.weights))

            parallel(average, pieces_of(sizes, kernels.SLICE))
    if statistics:
        warn(
            "these tensors are probably not weights, because the result lacks a property that they have in all models:"
            f" {name_some(f'{name} ({kind})' for name, kind in sorted(statistics.items()))}. Keep the base's values"
            f" with `keep_base: {min(statistics)}`"
        )
    warn_of_files(models.base, models.tasks)
    warn_of_configurations(models.base, models.tasks, models.heads)  # last, because it may wait for transformers
    return []


def _lost_kinds(models: Models, piece: TensorPiece, merged: NDArray[np.float32]) -> dict[str, str]:
    """What all models' values of a tensor have in common, by its name, if the merged ones lack it or are new counts."""
    every = np.array([one.piece(piece.name, piece.start, piece.stop) for one in models.checkpoints.values()])
    if (every >= 0).all() and every[0].any() and (merged < 0).any():
        return {piece.name: "never negative"}
    if (every == np.rint(every)).all() and (merged != every[0]).any():
        return {piece.name: "whole numbers"}
    return {}


def _heads(models: Models) -> dict[str, bytes]:
    """The files of the heads by name: each task's tensors, and its config.json, which has the class names."""
    contents: dict[str, bytes] = {}
    for task, file in heads_files(models).items():
        contents[file] = tensors_file(models.tasks[task], models.heads[task])
        if config := models.tasks[task].companions.get(CONFIG):
            contents[config_beside(file)] = config.read_bytes()
    return contents


def method_of(settings: Settings) -> tuple[Method, float, Weighting]:
    """The method with its options, the scaling coefficient, and the tasks' weights.

    Raises TallmasksError for an unknown method or option, or a setting that the method does not have.
    """
    registry.check_name(settings.method, method_names(), "method")
    method = registry.get(settings.spec)
    if not _is_a_merge(method):
        compress = settings.method in registry.names_with_masks()
        hint = "it is a method of `compress`" if compress else f"expected {', '.join(method_names())}"
        raise TallmasksError(f"method: {settings.method} does not merge models into one; {hint}")
    check_can_stream(method)
    if method.consensus_threshold is not None:
        _check_threshold(method.consensus_threshold, len(settings.tasks))
    elif settings.by_task("mask_lambda"):
        raise OptionError(f"mask_lambda: {settings.method} has no mask lambdas; leave it out, or use consensus merging")
    if weighting := settings.weighting:
        merge = registry.get_merge(str(method.merge))
        weighting.check(merge, f"method: {settings.method}")
        option = merge.sparsify
        if settings.density is not None and option in parse_spec(settings.method)[1].keys() | settings.options:
            raise OptionError(f"density: {option} is also given as an option of the method; leave one of them out")
    if isinstance(method.usage, Fixed):
        weights = [weighting.weights.get(task, 1.0) for task in settings.tasks]
        if abs(sum(weights)) < 1e-3 * sum(map(abs, weights)) or not any(weights):
            raise OptionError(
                f"weight: the weights sum to {sum(weights):g}, and {settings.method} divides by the sum; expected a"
                " sum that is not close to 0"
            )
        own = method.usage.coefficient_for(len(settings.tasks))
        if settings.scaling_coefficient is not None:
            raise TallmasksError(f"scaling_coefficient: {settings.method} has a fixed one, {own:g}; leave it out")
        if weighting.normalize is False:
            raise TallmasksError(f"normalize: {settings.method} always divides by the sum of the weights; leave it out")
        return (method, 1.0, replace(weighting, normalize=True)) if weighting else (method, own, weighting)
    assert isinstance(method.usage, Scaled)
    scaling_coefficient = settings.scaling_coefficient
    if scaling_coefficient is None:
        scaling_coefficient = 1.0 if weighting.weights else method.usage.unvalidated
    return method, scaling_coefficient, weighting


def _check_threshold(k: int, tasks: int) -> None:
    if k > tasks:
        raise TallmasksError(f"k = {k}: expected 0 to {tasks}, the number of tasks; a larger k keeps no weight")
    if 1 < k == tasks:
        warn(f"k = {k} keeps only weights that are in the masks of all {tasks} tasks; set k = 1, or give more tasks")


def _is_a_merge(method: Method) -> bool:
    return method.section == "merging" and method.merge is not None
