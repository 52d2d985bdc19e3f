"""Print what every method stores, for each model and benchmark of params.yaml, as CSV.

    tallmasks storage

In 1e9 bits, by the formulae of appendix C of the paper.  Parameters are counted in the model's file of pretrained
weights if params.yaml names one, else from its architecture.  Nothing is downloaded.  TSV-C and BitDelta need the
shapes of all tensors; without the file only their leading term is counted.  Results files have the exact size.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from tallmasks import methods
from tallmasks.models.families import family
from tallmasks.plan.chain import pretrained_source
from tallmasks.plan.project import open_plan
from tallmasks.results.tables import ParameterCounts

HEADER = ("model", "benchmark", "method", "storage_gb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    plan = open_plan()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(HEADER)
    for model in plan.models:
        kin, (source,) = family(plan.model(model)), pretrained_source(plan, model).values()
        if isinstance(source, Path):
            counts = ParameterCounts.of(kin, plan.model(model), source)
        else:
            counts = ParameterCounts(*kin.architecture_counts(plan.model(model)))
        for benchmark in plan.benchmarks(model):
            for name in plan.method_names:
                stored = counts.stored(methods.get(name), len(plan.tasks(benchmark)))
                table.writerow((model, benchmark, name, f"{stored:.4f}"))
    return 0
