"""Print how much storage each method needs.

    tallmasks storage --parameters 7B --tasks 8 --dtype bfloat16

Prints the bytes of all models, of one merged model, and of the base plus the usual bundles. The size of a bundle
depends on how much fine-tuning changed: `tallmasks compress --dry-run` measures it for your models.
"""

from __future__ import annotations

import argparse

from rich.filesize import decimal

from tallmasks.cli.options import count, one_of, whole_number
from tallmasks.errors import OptionError
from tallmasks.io.dtypes import DTYPE_ALIASES, FLOATS, OF_BUNDLES

BITS = 0.3
"""Bits that the default method of `tallmasks compress` needs for a weight of a sentence encoder with trained heads."""
MASKS_OVER_BITS = 3


def add_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    default = "" if required else " (default: the models of params.yaml)"
    parser.add_argument(
        "--parameters",
        type=count,
        required=required,
        metavar="P",
        help=f"number of parameters, for example 7e9, 7B or 350M{default}",
    )
    parser.add_argument(
        "--tasks", type=whole_number, metavar="T", default=8, help="number of fine-tuned models (default: 8)"
    )
    parser.add_argument(
        "--bits",
        type=float,
        default=BITS,
        help="bits per weight and task that stochastic_rounding needs, from `tallmasks compress --dry-run` (default:"
        f" {BITS}, as measured on a sentence encoder with trained heads)",
    )
    dtypes = [dtype for dtype, code in OF_BUNDLES.items() if code in FLOATS]
    parser.add_argument(
        "--dtype",
        type=one_of(dtypes, DTYPE_ALIASES),
        default="float32",
        help=f"dtype of base and models: {', '.join(dtypes)} (default: float32)",
    )


def run(arguments: argparse.Namespace) -> int:
    for option, least, most in (("parameters", 1, "1e15"), ("tasks", 1, "1000"), ("bits", 0, "32")):
        if not least <= (value := getattr(arguments, option)) <= float(most):
            raise OptionError(f"--{option}: found {value:g}, expected a number from {least} to {most}")
    model, tasks = int(arguments.parameters) * FLOATS[OF_BUNDLES[arguments.dtype]], arguments.tasks
    rows = {
        f"all {tasks} models": tasks * model,
        "one merged model": model,
        f"base + stochastic_rounding, {arguments.bits:g} bits": model
        + arguments.bits * tasks * arguments.parameters / 8,
        "base + masks over ties": model + (MASKS_OVER_BITS + tasks) * arguments.parameters / 8,
    }
    print(f"{'':36} {'bytes':>9} {'of all models':>13}")
    for name, size in rows.items():
        print(f"{name:36} {decimal(int(size)):>9} {size / (tasks * model):>13.1%}")
    return 0
