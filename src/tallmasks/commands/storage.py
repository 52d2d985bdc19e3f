"""Print what methods store: of a model of any size, or for each model and benchmark of params.yaml.

    tallmasks storage --parameters 7e9 --tasks 8 --dtype bfloat16
    tallmasks storage

The first prints the bytes of all models, one merged model, and the base with each kind of bundle.  The model
counts as one square matrix that every task changed.  `tallmasks compress --dry-run` has the bytes of your own models.

The second prints CSV in 1e9 bits, by the formulae of appendix C of the paper.  Parameters are counted in the model's
file of pretrained weights if params.yaml names one, else from its architecture.  Nothing is downloaded.  TSV-C and
BitDelta need the shapes of all tensors; without the file only their leading term is counted.  Results files have the
exact size.
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
from tallmasks.errors import TallmasksError
from tallmasks.io.dtypes import FLOATS, OF_BUNDLES
from tallmasks.results.stored_files import StartingPoint, bundle_facts
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo

HEADER = ("model", "benchmark", "method", "storage_gb")
BUNDLES = ("tall_mask_task_arithmetic", "t_switch", "bitdelta", "tsv_c")
"""The kinds of bundle.  Masks over any merge take the same, and so does EMR-Merging."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parameters", type=float, metavar="P", help="7e9; without it the models of params.yaml")
    parser.add_argument("--tasks", type=int, metavar="T", default=8, help="how many fine-tuned models of one base; 8")
    dtypes = [dtype for dtype, code in OF_BUNDLES.items() if code in FLOATS]
    parser.add_argument("--dtype", choices=dtypes, default="float32", help="of base, models and vector; float32")


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    if arguments.parameters is None:
        return _of_project()
    if not 1 <= arguments.parameters <= 1e15 or not 1 <= arguments.tasks <= 1000:
        raise TallmasksError("expected --parameters from 1 to 1e15, 7e9 for instance, and --tasks from 1 to 1000")
    rows = dict(_sizes(int(arguments.parameters), arguments.tasks, arguments.dtype))
    print(f"{'':36} {'bytes':>9} {'of all models':>13}")
    for name, size in rows.items():
        print(f"{name:36} {decimal(size):>9} {size / next(iter(rows.values())):>13.1%}")
    return 0


def _sizes(parameters: int, tasks: int, dtype: str) -> Iterator[tuple[str, int]]:
    """What may be kept, and its bytes."""
    code, side = OF_BUNDLES[dtype], isqrt(parameters)
    model = parameters * FLOATS[code]
    yield f"all {tasks} models", tasks * model
    yield "one merged model", model
    base = Checkpoint(title="", tensors={"blocks.0.weight": TensorInfo(code, (side, side))})
    for name in BUNDLES:
        facts = bundle_facts(name, [f"task{task}" for task in range(tasks)], StartingPoint(base, base.tensors))
        yield f"base + {name}", model + sum(bytes_of_bundle(replace(facts, dtype=dtype)).values())


def _of_project() -> int:
    """Print the CSV.  Its libraries are those of the workflow."""
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
