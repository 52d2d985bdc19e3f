"""Print how much storage each method needs.

    tallmasks storage --parameters 7B --tasks 8 --dtype bfloat16
    tallmasks storage

With --parameters: the bytes of all models, of one merged model, and of the base plus each kind of bundle. The model
counts as one square matrix that every task changed. `tallmasks compress --dry-run` gives the bytes for your models.

Without --parameters: a CSV for the models and benchmarks of params.yaml, in 1e9 bits, by the formulas in appendix C of
the paper. Parameters are counted in the file of pretrained weights if params.yaml names one, otherwise from the
architecture; nothing is downloaded. TSV-C and BitDelta depend on the shapes of all tensors; without the file only the
leading term is counted. The results files have the exact sizes.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import isqrt
from pathlib import Path

from rich.filesize import decimal

from tallmasks import methods
from tallmasks.bundles.bundle_writer import bytes_of_bundle
from tallmasks.commands.options import DTYPE_ALIASES, OptionError, count, one_of, whole_number
from tallmasks.io.dtypes import FLOATS, OF_BUNDLES
from tallmasks.results.stored_files import StartingPoint, bundle_facts
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo

HEADER = ("model", "benchmark", "method", "storage_gb")
BUNDLES = ("tall_mask_task_arithmetic", "t_switch", "bitdelta", "tsv_c")
"""One method per kind of bundle. Masks over any other merge, and EMR-Merging, need as much as the first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parameters",
        type=count,
        metavar="P",
        help="number of parameters, for example 7e9, 7B or 350M (default: the models of params.yaml)",
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
    if arguments.parameters is None:
        return _of_project()
    if not 1 <= arguments.parameters <= 1e15 or not 1 <= arguments.tasks <= 1000:
        raise OptionError("expected --parameters from 1 to 1e15 and --tasks from 1 to 1000")
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
    for name in BUNDLES:
        facts = bundle_facts(name, [f"task{task}" for task in range(tasks)], StartingPoint(base, base.tensors))
        yield f"base + {name}", model + sum(bytes_of_bundle(replace(facts, dtype=dtype)).values())


def _of_project() -> int:
    """Print the CSV. The imports need the extra `workflow`."""
    from tallmasks.models.families import family
    from tallmasks.plan.chain import pretrained_source
    from tallmasks.plan.project import open_plan
    from tallmasks.results.tables import ParameterCounts

    plan = open_plan()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(HEADER)
    for model in plan.models:
        model_family, (source,) = family(plan.model(model)), pretrained_source(plan, model).values()
        if isinstance(source, Path):
            counts = ParameterCounts.of(model_family, plan.model(model), source)
        else:
            counts = ParameterCounts(*model_family.architecture_counts(plan.model(model)))
        for benchmark in plan.benchmarks(model):
            for name in plan.method_names:
                stored = counts.stored(methods.get(name), len(plan.tasks(benchmark)))
                table.writerow((model, benchmark, name, f"{stored:.4f}"))
    return 0
