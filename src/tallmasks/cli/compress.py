"""Compress fine-tuned models of one base into a bundle, which restores any of them.

    tallmasks compress --base ./base --task cars=./cars --task dtd=./dtd -o ./bundle
    tallmasks compress --base ./base --task cars=./cars --task dtd=./dtd --bits 2 -o ./bundle
    tallmasks compress --base org/base --task a=org/a --task b=org/b --method ties --mask-lambda 0.3 -o ./bundle

`tallmasks export` writes a task's model from the bundle, and `tallmasks.load_bundle` opens it in Python. A bundle
keeps each task's own heads, configuration and tokenizer.

lloyd_max, the default, rounds each weight of a task vector's matrices to one of 2^bits levels, with a scale per row. It
needs no data ("Which method" in the documentation compares accuracy and size). tvq has evenly spaced levels, t_switch
stores -1, 0 or 1 per weight, bitdelta one sign per weight of each matrix, and tsv_c matrices truncated to 1/T of their
rank.

The other methods store one shared vector, in a few bits too, plus one bit per weight and task. The shared vector is
task_arithmetic, ties (the sum variant, as in the paper) or another merge. A mask keeps the weights with
|tau_t| > lambda |tau_MTL - tau_t|; choose lambda on validation data. Without it, the masked vector gets the L1 norm of
tau_t, or half of the shared vector's if this is smaller. The masks of emr keep the weights whose sign agrees with the
shared vector's, and each task has a scale.
"""

from __future__ import annotations

import argparse

from rich.filesize import decimal

from tallmasks.bundles.bundle import load_bundle, size_of_bundle
from tallmasks.bundles.bundle_writer import bytes_of_bundle, bytes_of_card
from tallmasks.bundles.manifest import BASE
from tallmasks.cli import shared_options
from tallmasks.cli.options import Refused, whole_number
from tallmasks.cli.printed_models import print_buffers, print_copied, print_own, print_plan, print_sizes
from tallmasks.io.dtypes import OF_BUNDLES
from tallmasks.methods import registry
from tallmasks.operations.compress import METHOD, OF_MERGE, prepare_bundle, write_bundle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names, dtypes = registry.names_with_masks(), list(OF_BUNDLES)
    _, _, output = shared_options.add_arguments(
        parser, METHOD, names, dtypes, "equal length", "the checkpoints'; alone it replaces --bits 3"
    )
    for setting in OF_MERGE:
        text = "a bundle keeps each task's head" if setting == "heads" else "an option of `tallmasks merge`"
        output.add_argument(f"--{setting.replace('_', '-')}", action=Refused, const=text)
    output.add_argument(
        "--bits",
        type=whole_number,
        metavar="BITS",
        help="round every value of a matrix to 2^BITS levels: 2, 3, 4 or 8 (default: 3, unless --dtype is given)",
    )
    output.add_argument("--include-base", action="store_true", default=None, help="copy the base model into the bundle")


def run(arguments: argparse.Namespace) -> int:
    settings = shared_options.read_settings(arguments, METHOD, OF_BUNDLES)
    method, models, contents = prepare_bundle(settings)
    count = len(settings.tasks)
    if arguments.dry_run:
        files = {name: size for name, size in bytes_of_bundle(contents).items() if not name.startswith(BASE)}
        size = sum(files.values()) + bytes_of_card(contents)
        print_plan(models, f"compress by {method.title}", size)
        print_own(models)
        print_sizes(models.nbytes[0], size, models.nbytes[1], count)
        return 0
    chosen, errors = write_bundle(method, models, contents)
    size = size_of_bundle(load_bundle(settings.output))
    print(f"{settings.output}: {count} model{'s' * (count > 1)} in {decimal(size)}, by {method.title}")
    if settings.include_base:
        print_copied(models.base)
    print_buffers(models)
    print_own(models)
    what = "scale" if method.scaled_mask else "lambda"
    for task, of_task in errors.items():
        value = f"{what} = {chosen[task]:g}, " if task in chosen else ""
        print(f"  {task}: {value}{of_task}")
    print_sizes(models.nbytes[0], size, models.nbytes[1], count)
    print(shared_options.NEXT)
    return 0
