"""Compress fine-tuned models of one base into a bundle: one merged vector, and a bit mask per task.

    tallmasks compress --base ./base --task cars=./cars --task dtd=./dtd -o ./bundle
    tallmasks compress --base org/base --task a=org/a --task b=org/b --method ties --fit --dtype bfloat16 -o ./bundle

Any task comes back by `tallmasks export`, or in Python by `tallmasks.load_bundle`.  METHOD is what the masks are over:
task_arithmetic, ties (their disjoint sum, as in the paper), or the name of a masking row of the tables.  A task's
mask keeps the weights with |tau_t| > lambda |tau_MTL - tau_t|; where no validation data chooses lambda, --fit takes
the one of a grid at which what the mask keeps has the length of tau_t.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.filesize import decimal

from tallmasks.commands import given_checkpoints
from tallmasks.commands.opened_models import opened, passes
from tallmasks.masks.task_bundle import BundleFacts, new_bundle
from tallmasks.methods import registry
from tallmasks.methods.mask_lambdas import FITTED, fitted_lambdas
from tallmasks.methods.streaming import Merging, Place, in_stream
from tallmasks.methods.streaming import run as stream_through
from tallmasks.store.errors import TallmasksError
from tallmasks.vectors import kernels

METHOD = "task_arithmetic"
MASK_LAMBDA = 0.4
"""The middle of the paper's grid."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    given_checkpoints.add_arguments(parser, METHOD)
    parser.add_argument("--fit", action="store_true", help="choose each task's lambda without data, see above")
    parser.add_argument("--include-base", action="store_true", help="copy the base model into the bundle")


def run(arguments: argparse.Namespace) -> int:
    """Write the bundle, and print where it is and how large."""
    given = given_checkpoints.given(arguments, METHOD)
    method = registry.masks_over(
        registry.spec_of({given.method: dict(given.options)} if given.options else given.method)
    )
    in_stream(method)
    if given.fit and (given.mask_lambda is not None or given.mask_lambdas):
        raise TallmasksError("--fit chooses every mask lambda; give either it or --mask-lambda")
    lambdas = given.lambdas(MASK_LAMBDA)
    models = opened(given)
    if arguments.dry_run:
        models.describe(f"compress by {method.title}", models.bytes_of_bundle(given.dtype, arguments.include_base))
        return 0
    with models.progress("compressing", passes(method.merge, given.fit)) as progress:
        stream = models.stream(progress)
        merging = Merging(registry.get_merge(str(method.merge)), stream)
        if given.fit:
            lambdas = fitted_lambdas(merging, stream, FITTED)
        chosen = dict(zip(given.tasks, lambdas, strict=True))
        facts = BundleFacts(
            method=method.name,
            base=replace(models.base, origin=_from_anywhere(models.base.origin)),
            tasks=list(given.tasks),
            options=dict(given.options),
            dtype=given.dtype or "float32",
            unchanged=models.unchanged,
            mask_lambda=chosen,
            include_base=arguments.include_base,
        )
        with new_bundle(given.output, facts) as new:

            def work(place: Place) -> None:
                rows = stream.rows(place)
                merged = merging(place, rows)
                named = zip(given.tasks, rows, lambdas, strict=True)
                masks = {task: kernels.pack_mask(row, merged, value) for task, row, value in named}
                new.write(place.name, place.start, merged, masks)

            stream_through(stream.places(merging.over_tensors), work, at_once=merging.at_once)
    size = sum(path.stat().st_size for path in given.output.rglob("*") if path.is_file())
    print(f"{given.output}: {len(given.tasks)} models in {decimal(size)}, by {method.title}")
    for task, value in chosen.items():
        print(f"  {task}: lambda = {value:g}")
    return 0


def _from_anywhere(origin: Mapping[str, str]) -> dict[str, str]:
    """Where a base is, so that it is found from every folder."""
    return {key: str(Path(value).absolute()) if key == "path" else value for key, value in origin.items()}
