"""Merge fine-tuned models of one base into one model.

    tallmasks merge --base ./base --task cars=./cars --task dtd=./dtd --method task_arithmetic -o ./merged
    tallmasks merge --base org/base --task a=org/a --task b=org/b@v2 --method consensus_ties --k 2 \\
        --mask-lambda 0.4 --mask-lambda b=0.3 --option keep=0.1 --scaling-coefficient 0.5 -o ./merged
    tallmasks merge --base ./base --task cars=./cars --task dtd=./dtd --method ties --density 0.5 --trim tensor \\
        --weight cars=0.7 --weight dtd=0.3 -o ./merged
    tallmasks merge merge.yaml

A checkpoint is a safetensors file, a folder of a transformers model, a state dict of torch.save, a PEFT LoRA folder, or
a repository of the hub.  The merged model comes in the layout of the base, with its tokenizer and configuration and a
model card, whole or not at all; code is not copied, nor what links lead to outside of the folder.  Memory does not grow
with the models: they are read a piece at a time.
"""

from __future__ import annotations

import argparse
import functools
from dataclasses import replace
from typing import Any

import numpy as np

from tallmasks.commands import given_checkpoints
from tallmasks.commands.given_checkpoints import Given
from tallmasks.commands.model_cards import card_of_merged
from tallmasks.commands.opened_models import opened, passes, say_copied
from tallmasks.methods import Fixed, Method, Place, Scaled, registry
from tallmasks.methods.streaming import Merging, OnePiece, in_stream, update
from tallmasks.methods.weighting import TRIMS, Weighting
from tallmasks.store.dtypes import DTYPES, FLOATS
from tallmasks.store.errors import TallmasksError
from tallmasks.store.parallel import parallel
from tallmasks.vectors.checkpoints.writing import bytes_of_new, new_checkpoint

MASK_LAMBDA = 0.4
"""The middle of the paper's grid, where a consensus needs masks and none is given."""
_DTYPES = [DTYPES[code].torch for code in FLOATS]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    into_one = [
        name
        for name in registry.names()
        if _is_a_merge(registry.get(name)) and not registry.statistics_behind(registry.get(name))
    ]
    given_checkpoints.add_arguments(parser, None, into_one, _DTYPES)
    parser.add_argument("--scaling-coefficient", type=float, help="alpha; else what the method's paper recommends")
    parser.add_argument("--k", type=int, help="of a consensus: how many tasks' masks must hold a weight; 2")
    by_task: dict[str, Any] = {"action": "append", "default": [], "metavar": "[NAME=]VALUE"}
    parser.add_argument(
        "--weight", **by_task, help="what multiplies a task vector, 1; with any given, alpha is 1 if not given too"
    )
    parser.add_argument("--density", **by_task, help="the share of its weights that a task keeps, of TIES, DARE, ...")
    parser.add_argument(
        "--trim",
        choices=TRIMS,
        help="what the share that TIES keeps is of: all weights, or each tensor's as in mergekit",
    )
    parser.add_argument(
        "--normalize", action=argparse.BooleanOptionalAction, help="divide by the weights; as the method does without"
    )


def run(arguments: argparse.Namespace) -> int:
    """Merge, and print where the result is."""
    given = given_checkpoints.given(arguments, None, _DTYPES)
    given.lacks(given_checkpoints.OF_COMPRESS, "compress")
    method, alpha, weighting = merging_method(given)
    lambdas = given.lambdas(MASK_LAMBDA)
    models = opened(given)
    if arguments.dry_run:
        models.describe(
            f"merge by {method.title}, alpha = {alpha:g}", bytes_of_new(given.output, models.base, given.dtype)
        )
        return 0
    with models.progress("merging", passes(method.merge)) as progress:
        stream = models.stream(progress)
        merging = Merging(registry.get_merge(str(method.merge)), stream, weighting)
        card = card_of_merged(method, alpha, models)
        with new_checkpoint(given.output, models.base, card, given.dtype) as new:

            def work(place: Place) -> None:
                source = OnePiece(stream, place, merging, lambdas)
                new.write(place.name, place.start, source.pretrained + np.float32(alpha) * update(method, source))

            parallel(work, stream.places(merging.over_tensors), merging.threads)
    count = len(given.tasks)
    print(f"{given.output}: {count} model{'s' * (count > 1)} merged by {method.title}, alpha = {alpha:g}")
    say_copied(models.base)
    return 0


def merging_method(given: Given) -> tuple[Method, float, Weighting]:
    """The row of the table that is meant, with its options and k; alpha; and how the tasks count.

    Raises:
        TallmasksError: there is no such method or option, it does not merge into one model, or a setting is not its.
    """
    method = registry.get(given.spec)
    if not _is_a_merge(method):
        if given.method in registry.names_with_masks():
            hint = "it keeps a model per task: `tallmasks compress`"
        elif method.section == "compression":
            hint = "it keeps a model per task, and no command writes it"
        else:
            hint = "nothing to do"
        raise TallmasksError(f"--method {given.method} does not merge models into one: {hint}")
    in_stream(method)
    if given.k is not None:
        if "agreement" not in method.needs or not isinstance(method.update, functools.partial):
            raise TallmasksError(f"--k is for a consensus; {given.method} has none")
        if not 0 <= given.k <= len(given.tasks):
            raise TallmasksError(f"--k {given.k}: expected a number of tasks, 0 to {len(given.tasks)}")
        method = replace(method, update=functools.partial(method.update.func, k=given.k))
    if weighting := given.weighting():
        weighting.check(str(method.merge), f"--method {given.method}")
    if isinstance(method.protocol, Fixed):
        own = method.protocol.coefficient_for(len(given.tasks))
        if given.scaling_coefficient is not None:
            raise TallmasksError(f"--scaling-coefficient: {given.method} has its own, {own:g}; leave it out")
        if weighting.normalize is False:
            raise TallmasksError(f"normalize: {given.method} is a mean; leave it out, or take task_arithmetic")
        return (method, 1.0, replace(weighting, normalize=True)) if weighting else (method, own, weighting)
    assert isinstance(method.protocol, Scaled)
    without = 1.0 if weighting.weights else method.protocol.unvalidated
    alpha = without if given.scaling_coefficient is None else given.scaling_coefficient
    if not np.isfinite(np.float32(alpha)):
        raise TallmasksError(f"--scaling-coefficient {alpha}: expected a finite number")
    return method, alpha, weighting


def _is_a_merge(method: Method) -> bool:
    """Whether a method gives one model."""
    return method.section == "merging" and method.merge is not None
