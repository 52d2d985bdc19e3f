"""Compress fine-tuned models of one base into a bundle: one merged vector, and a bit mask per task.

    tallmasks compress --base ./base --task cars=./cars --task dtd=./dtd -o ./bundle
    tallmasks compress --base org/base --task a=org/a --task b=org/b --method ties --fit --dtype bfloat16 -o ./bundle

Any task comes back by `tallmasks export`, or in Python by `tallmasks.load_bundle`.  METHOD is the merge under the
masks: task_arithmetic, ties (their disjoint sum, as in the paper), or a masking row of the tables.  emr has masks of
agreeing signs, and a scale per task.  A task's mask keeps the weights with |tau_t| > lambda |tau_MTL - tau_t|.  --fit
chooses lambda from a grid without validation data: the masked vector gets the length of tau_t.

Other methods compress each task by itself.  bitdelta stores a sign per weight of a matrix.  t_switch stores -1, 0 or 1
per weight.  tsv_c stores matrices of a T-th of their rank.  Their bundles have no merged vector.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from math import fsum, prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_models import BundleModel
from tallmasks.bundles.bundle_writer import BundleFacts, bytes_of_bundle, new_bundle
from tallmasks.commands import compressed_tensors, given_checkpoints
from tallmasks.commands.given_checkpoints import Given
from tallmasks.commands.opened_models import Models, opened, passes
from tallmasks.methods import Method, Place, ScaledMask, Vector, registry
from tallmasks.methods.mask_lambdas import FITTED, fitted_lambdas
from tallmasks.methods.streaming import Merging, in_stream
from tallmasks.store.dtypes import OF_BUNDLES
from tallmasks.store.errors import TallmasksError
from tallmasks.store.parallel import parallel
from tallmasks.vectors import kernels

METHOD = "task_arithmetic"
MASK_LAMBDA = 0.4
"""The middle of the paper's grid."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given_checkpoints.add_arguments(parser, METHOD, registry.names_with_masks(), list(OF_BUNDLES))
    parser.add_argument("--fit", action="store_true", help="choose each task's lambda without data, see above")
    parser.add_argument(
        "--entropy-coding", action="store_true", help="fewer bytes, which are decoded into memory when it is loaded"
    )
    parser.add_argument("--include-base", action="store_true", help="copy the base model into the bundle")


def run(arguments: argparse.Namespace) -> int:
    """Write the bundle, and print where it is and how large."""
    given = given_checkpoints.given(arguments, METHOD, list(OF_BUNDLES))
    method, lambdas, models = _prepared(given)
    if arguments.dry_run:
        how = f"compress by {method.title}{', before entropy coding' if given.entropy_coding else ''}"
        if method.own_tensors:
            size = sum(bytes_of_bundle(compressed_tensors.facts_of(method, models)).values())
        else:
            size = models.bytes_of_bundle(given.dtype, given.include_base)
        models.describe(how, size)
        return 0
    chosen = _write(method, lambdas, models)
    models.say_written(method.title)
    for task, value in chosen.items():
        print(f"  {task}: {'scale' if method.scaled_mask else 'lambda'} = {value:g}")
    return 0


def compress(
    base: str | PathLike[str],
    tasks: Mapping[str, str | PathLike[str]],
    out: str | PathLike[str],
    method: str = METHOD,
    *,
    options: Mapping[str, Any] | None = None,
    mask_lambda: float | Mapping[str, float] | None = None,
    fit: bool = False,
    dtype: Any = None,
    entropy_coding: bool = False,
    include_base: bool = False,
) -> Path:
    """What `tallmasks compress` does, under the same names: compress checkpoints of one base into a bundle.

    Args:
        base: a file, a folder, or a repository `org/name@revision`.
        tasks: the same of fine-tuned models, by task.
        out: a new folder.
        options: of the method, {"keep": 0.1}.
        mask_lambda: for every task, or by task.

    Returns where it is; `tallmasks.load_bundle` opens it.  Raises TallmasksError as the command does.
    """
    settings = {name: value for name, value in locals().items() if name not in ("base", "tasks", "out")}
    given = given_checkpoints.from_python(base, tasks, out, **settings)
    _write(*_prepared(given))
    return given.output


def _prepared(given: Given) -> tuple[Method, list[float], Models]:
    """The method, each task's lambda unless it is fitted, and models that fit.

    Raises TallmasksError where something cannot be meant, is not there, or does not fit.
    """
    given.lacks(given_checkpoints.OF_MERGE, "merge")
    if given.weighting():
        raise TallmasksError(
            "weight, density, trim and normalize mean nothing here: they are of `tallmasks merge`; leave them out"
        )
    method = registry.masks_over(given.spec)
    if method.own_tensors is None:
        in_stream(method)
    if given.fit and (given.mask_lambda is not None or given.mask_lambdas):
        raise TallmasksError("--fit chooses every mask lambda; give either it or --mask-lambda")
    if given.fit or given.mask_lambda is not None or given.mask_lambdas:
        if method.scaled_mask:
            raise TallmasksError(
                f"the masks of {method.name} follow from signs alone; leave out --mask-lambda and --fit"
            )
        if method.own_tensors:
            raise TallmasksError(f"{method.name} has no masks; leave out --mask-lambda and --fit")
    models = opened(given)
    if isinstance(models.base, BundleModel):
        raise TallmasksError(f"{given.base}: a bundle's base lies in files of its own; `tallmasks export` it first")
    return method, given.lambdas(MASK_LAMBDA), models


def _write(method: Method, lambdas: list[float], models: Models) -> dict[str, float]:
    """Write the bundle; each task's lambda or scale, if it has one."""
    given = models.given
    if method.own_tensors:
        compressed_tensors.write(method, models)
        return {}
    with models.progress("compressing", passes(method.merge, given.fit)) as progress:
        stream = models.stream(progress)
        merging = Merging(registry.get_merge(str(method.merge)), stream)
        if given.fit:
            lambdas = fitted_lambdas(merging, stream, FITTED)
        chosen = dict(zip(given.tasks, lambdas, strict=True))
        facts = BundleFacts(
            method=method.name,
            base=models.base_from_anywhere,
            tasks=list(given.tasks),
            options=dict(given.options),
            dtype=given.dtype or "float32",
            unchanged=models.unchanged,
            mask_lambda={} if method.scaled_mask else chosen,
            include_base=given.include_base,
            entropy_coding=given.entropy_coding,
        )
        with new_bundle(given.output, facts) as new:

            def work(place: Place) -> list[tuple[float, float]]:
                rows = stream.rows(place)
                merged = merging(place, rows)
                if method.scaled_mask is None:
                    packed = list(kernels.pack_masks(rows, merged, lambdas))
                    found: list[tuple[float, float]] = []
                else:
                    of = prod(stream.shape(place.name))
                    packed, found = _scaled(method.scaled_mask, rows, merged, of)
                new.write(place.name, place.start, merged, dict(zip(given.tasks, packed, strict=True)))
                return found

            lengths = parallel(work, stream.places(merging.over_tensors), merging.threads)
            if method.scaled_mask:
                for task, pairs in zip(given.tasks, zip(*lengths, strict=True), strict=True):
                    own, held = (fsum(values) for values in zip(*pairs, strict=True))  # of all pieces
                    new.scale[task] = method.scaled_mask.scale(own, held)
            scales = dict(new.scale)
    return scales if method.scaled_mask else chosen


def _scaled(
    how: ScaledMask, rows: Sequence[Vector], merged: Vector, size: int
) -> tuple[list[NDArray[np.uint8]], list[tuple[float, float]]]:
    """Each task's packed mask of a slice of a tensor of so many values, and what the slice adds to the lengths of tau_t
    and of what the mask holds."""
    packed, lengths = [], []
    for row in rows:
        mask = how.mask(row, merged)
        packed.append(np.packbits(mask, bitorder="little"))
        lengths.append((how.length(row, size), how.length(merged * mask, size)))
    return packed, lengths
