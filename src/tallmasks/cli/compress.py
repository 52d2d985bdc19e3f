"""Compress fine-tuned models of one base into a bundle, which restores any of them.

    tallmasks compress --base ./base --task cars=./cars --task dtd=./dtd -o ./bundle
    tallmasks compress --base ./base --task cars=./cars --task dtd=./dtd --step 0.2 -o ./bundle
    tallmasks compress --base ./base --task cars=./cars --task dtd=./dtd --method lossless -o ./bundle
    tallmasks compress --base org/base --task a=org/a --task b=org/b --method ties --mask-lambda 0.3 -o ./bundle

`tallmasks export` writes a task's model from the bundle, and `tallmasks.load_bundle` opens it in Python. A bundle
keeps each task's own heads, configuration and tokenizer.

stochastic_rounding, the default, rounds each change of a weight at random, without bias, to a multiple of a step that
is a fraction of the base's weights. It needs no data. A larger --step makes the bundle smaller and the noise larger;
--dry-run prints sizes and noise for several steps. lossless restores every tensor bit for bit.

The other methods store one shared vector, in a few bits per value, plus a mask per task. The shared vector is
task_arithmetic, ties (the sum variant, as in the paper) or another merge. A mask keeps the weights with
|tau_t| > lambda |tau_MTL - tau_t|; choose lambda on validation data. Without it, the masked vector gets the L1 norm of
tau_t, or half of the shared vector's if this is smaller.
"""

from __future__ import annotations

import argparse

from rich.filesize import decimal

from tallmasks.bundles.bundle import load_bundle, size_of_bundle
from tallmasks.bundles.bundle_writer import fixed_bytes
from tallmasks.bundles.manifest import BASE
from tallmasks.bundles.original_files import exactness
from tallmasks.cli import shared_options
from tallmasks.cli.options import converted
from tallmasks.cli.printed_models import IN_BUNDLE, print_copied, print_files, print_plan, print_roles_of, print_sizes
from tallmasks.methods import registry
from tallmasks.operations.choosing import best_lambdas
from tallmasks.operations.compress import METHOD, estimated_sizes, prepare_bundle, write_bundle

_FAMILIAR = "a model quantised to 4 bits has about 10 %"
"""About the noise: see `operations.compress.noise_of_tasks`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = registry.names_with_masks()
    _, chosen, output = shared_options.add_arguments(
        parser, METHOD, names, "equal length", "mask_lambda=0.2,0.3,0.4", "{} (the model) and {task}"
    )
    chosen.add_argument(
        "--step",
        type=converted(lambda text: ("step", float(text)), "a number"),
        action="append",
        dest="option",
        metavar="STEP",
        help="step of stochastic_rounding, in units of the root mean square of each row of the base (default: 0.1)",
    )
    chosen.add_argument(
        "--bits",
        type=converted(lambda text: ("bits", int(text)), "a whole number"),
        action="append",
        dest="option",
        metavar="BITS",
        help="for methods with masks: approximate bits per value of the shared vector: 2, 3, 4 or 8 (default: 3)",
    )
    output.add_argument("--include-base", action="store_true", default=None, help="copy the base model into the bundle")


def run(arguments: argparse.Namespace) -> int:
    from tallmasks.operations.merge_settings import OF_MERGE  # its libraries are slow to import

    settings = shared_options.read_settings(arguments, METHOD, OF_MERGE)
    if choice := shared_options.read_choice(arguments, "{} {task}"):
        settings = best_lambdas(settings, choice)
    method, models, contents = prepare_bundle(settings)
    count = len(settings.tasks)
    if arguments.dry_run:
        fixed = sum(size for name, size in fixed_bytes(contents).items() if not name.startswith(BASE))
        print_plan(models, f"compress by {method.title}", IN_BUNDLE)
        print_files(models)
        for name, size, noise in estimated_sizes(method, models):
            after = "" if noise is None else f", noise {noise:.2%} of the weights"
            print(f"write  {name}: about {decimal(fixed + size)}{after}")
        if noise is not None:
            print(f"       noise: the relative error of a tensor, as root mean square over the tensors; {_FAMILIAR}")
        return 0
    lambdas, manifest = write_bundle(method, models, contents)
    size = size_of_bundle(load_bundle(settings.output))
    print(f"{settings.output}: {count} model{'s' * (count > 1)} in {decimal(size)}, by {method.title}")
    if settings.include_base:
        print_copied(models.base)
    print_roles_of(models, IN_BUNDLE, every=False)
    print_files(models)
    for task, value in lambdas.items():
        print(f"  {task}: lambda = {value:g}")
    print_sizes(models.nbytes[0], size, models.nbytes[1], count)
    if manifest.is_exact:
        print("every tensor of every model comes back exactly, bit for bit")
        print(exactness(manifest))
    else:
        print(f"noise: at most {max(manifest.noise.values()):.2%} of the weights ({_FAMILIAR})")
    print(shared_options.NEXT)
    return 0
