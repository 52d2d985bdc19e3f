"""Show what a bundle or a checkpoint contains.

    tallmasks info ./bundle
    tallmasks info ./cars
    tallmasks info org/name@revision
    tallmasks info ./bundle#cars
    tallmasks info ./adapter --base ./base

Reads names, shapes and sizes, but no values.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from math import prod
from pathlib import Path

from rich.filesize import decimal

from tallmasks.bundles.bundle import Bundle, load_bundle, size_of_bundle
from tallmasks.bundles.bundle_models import open_model
from tallmasks.bundles.manifest import BUFFER, COMPANIONS, MANIFEST, Manifest, ModelSizes
from tallmasks.bundles.model_card import noise_of
from tallmasks.cli.printed_models import IN_BUNDLE, print_roles, print_sizes
from tallmasks.errors import TallmasksError, counted, one_line
from tallmasks.io import hub
from tallmasks.io.dtypes import nbytes_of
from tallmasks.io.plain_files import expanded
from tallmasks.operations.tensor_roles import NOT_IN_BASE, NOT_IN_TASK, OTHER_SHAPE, Role, TensorRole, TensorRoles
from tallmasks.vectors.checkpoints.buffers import buffers_among
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.hub_models import repository_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", type=expanded, metavar="BUNDLE|CHECKPOINT", help="a file, a folder, or a repository ORG/NAME[@REVISION]"
    )
    parser.add_argument("--base", type=expanded, help="for a LoRA: the model that it was trained on")


def run(arguments: argparse.Namespace) -> int:
    if _is_bundle(arguments.what):
        of_bundle(load_bundle(arguments.what))
    else:
        base = open_model(arguments.base) if arguments.base else None
        of_checkpoint(open_model(arguments.what, base))
    return 0


def _is_bundle(what: str) -> bool:
    if os.path.lexists(what) or (named := repository_of(what)) is None:
        return Path(what, MANIFEST).is_file() or Path(what).name == MANIFEST
    repository, revision = named
    try:
        return hub.download(repository, MANIFEST, revision).is_file()
    except TallmasksError:
        return False


def of_checkpoint(checkpoint: Checkpoint) -> None:
    counts, values = Counter(info.dtype for info in checkpoint.tensors.values()), Counter[str]()
    for info in checkpoint.tensors.values():
        values[info.dtype] += info.size
    origin = " ".join(f"{key} {value}" for key, value in checkpoint.origin.items())
    total = sum(values.values())
    tensors, files = counted(len(checkpoint.tensors), "tensor"), counted(len(checkpoint.files), "weight file")
    print(f"{checkpoint.title}: {tensors}, {total:,} values, {decimal(checkpoint.nbytes)}")
    print(f"  from {origin}, {files}, {len(checkpoint.companions)} others")
    for dtype, count in counts.most_common():
        print(f"  {dtype}: {counted(count, 'tensor')}, {values[dtype]:,} values")
    for alias, name in checkpoint.aliases.items():
        print(f"  {alias} is tied to {name}")


def roles_of(manifest: Manifest) -> TensorRoles:
    """What happened to the tensors of a bundle, and why, as far as it says."""
    roles, kinds = (
        {True: Role.MERGED, False: Role.UNCHANGED, BUFFER: Role.OWN},
        buffers_among({name: one.shape for name, one in manifest.tensors.items()}),
    )
    of_base = {
        name: TensorRole(roles[one.stored], kinds[name].value if name in kinds else "")
        for name, one in sorted(manifest.tensors.items())
    }
    of_tasks = {
        task: {name: OTHER_SHAPE if name in manifest.tensors else NOT_IN_BASE for name in model.own}
        | dict.fromkeys(model.missing, NOT_IN_TASK)
        for task, model in manifest.models.items()
    }
    return TensorRoles(of_base, of_tasks)


def of_bundle(bundle: Bundle) -> None:
    manifest = bundle.manifest
    stored = sum(tensor.size for tensor in manifest.encoded.values())
    values = sum(tensor.size for tensor in manifest.tensors.values())
    base = manifest.base.repository or manifest.base.path or "unknown"
    where = "included" if manifest.base.included else "not included"
    size = decimal(size_of_bundle(bundle))
    print(f"bundle of {counted(len(bundle.tasks), 'task')} by {one_line(manifest.method)}, {size}")
    print(f"  base: {one_line(base)} ({where})")
    print(f"  {values:,} values in {counted(len(manifest.tensors), 'tensor')}, {stored:,} of them stored")
    of_base = {name: nbytes_of(one.dtype, one.size) for name, one in manifest.tensors.items()}
    own = {
        task: {n: nbytes_of(o.dtype, prod(o.shape)) for n, o in one.own.items()}
        for task, one in manifest.models.items()
    }
    print_roles(roles_of(manifest), of_base, own, IN_BUNDLE)
    sizes = {task: decimal(manifest.files[file].size) for task, file in manifest.task_files.items()}
    lambdas = bool(manifest.masks)
    print(f"  {'task':24} {'size':>10} {'noise':>8}" + f" {'lambda':>8} {'density':>8}" * lambdas)
    for task in bundle.tasks:
        masked = f" {manifest.mask_lambda[task]:>8g} {bundle.density(task):>8.1%}" if lambdas else ""
        print(f"  {task:24} {sizes[task]:>10} {noise_of(manifest, task):>8}{masked}")
    kept = {name: part.size for name, part in manifest.files.items() if name.startswith(COMPANIONS)}
    if kept:
        size = decimal(sum(kept.values()))
        print(f"  configurations and tokenizers that differ from the base's: {counted(len(kept), 'file')}, {size}")
    nbytes = sum(of_base.values())
    sizes_of = manifest.sizes or ModelSizes(base=nbytes, models=nbytes * len(bundle.tasks))
    print_sizes(sizes_of.base, size_of_bundle(bundle), sizes_of.models, len(bundle.tasks))
