"""Print how much storage each method needs.

    tallmasks storage --parameters 7B --tasks 8 --dtype bfloat16

Prints the bytes of all models, of one merged model, and of the base plus the usual bundles. The model counts as one
square matrix that every task changed. `tallmasks compress --dry-run` gives the bytes for your models.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from math import isqrt

from rich.filesize import decimal

from tallmasks import methods
from tallmasks.bundles.bundle_writer import BundleContents, bytes_of_bundle
from tallmasks.cli.options import count, one_of, whole_number
from tallmasks.errors import OptionError
from tallmasks.io.dtypes import DTYPE_ALIASES, FLOATS, OF_BUNDLES
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

BUNDLES = (
    "lloyd_max", "lloyd_max:bits=2", "t_switch", "bitdelta", "tsv_c", "tall_mask_ties", "tall_mask_ties:bits=3",
)  # fmt: skip
"""One method per kind of bundle. Masks over any other merge, and EMR-Merging, need as much as the first."""


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
    dtypes = [dtype for dtype, code in OF_BUNDLES.items() if code in FLOATS]
    parser.add_argument(
        "--dtype",
        type=one_of(dtypes, DTYPE_ALIASES),
        default="float32",
        help=f"dtype of base, models and vector: {', '.join(dtypes)} (default: float32)",
    )


def run(arguments: argparse.Namespace) -> int:
    for option, most in (("parameters", "1e15"), ("tasks", "1000")):
        if not 1 <= (value := getattr(arguments, option)) <= float(most):
            raise OptionError(f"--{option}: found {value:g}, expected a number from 1 to {most}")
    rows = dict(_sizes(int(arguments.parameters), arguments.tasks, arguments.dtype))
    print(f"{'':36} {'bytes':>9} {'of all models':>13}")
    for name, size in rows.items():
        print(f"{name:36} {decimal(size):>9} {size / next(iter(rows.values())):>13.1%}")
    return 0


def _sizes(parameters: int, tasks: int, dtype: str) -> Iterator[tuple[str, int]]:
    code, side = OF_BUNDLES[dtype], isqrt(parameters)
    model = parameters * FLOATS[code]
    yield f"all {tasks} models", tasks * model
    yield "one merged model", model
    base = Checkpoint(title="", tensors={"blocks.0.weight": TensorInfo(code, (side, side))})
    names = [f"task{task}" for task in range(tasks)]
    for name in BUNDLES:
        method = methods.get(name)
        codings, by_task = method.codings(base.layout, tasks), method.codec is not None
        contents = BundleContents(name, base, names, dtype=dtype, by_task=by_task, codings=codings)
        yield f"base + {name}", model + sum(bytes_of_bundle(contents).values())
