"""Print how much storage each method needs.

    tallmasks storage --parameters 7B --tasks 8 --dtype bfloat16
    tallmasks storage

With --parameters: the bytes of all models, of one merged model, and of the base plus the usual bundles. The size of a
bundle depends on how much fine-tuning changed: `tallmasks compress --dry-run` measures it for your models.

Without --parameters: a CSV for the models and benchmarks of params.yaml, in 1e9 bits, by the formulas in appendix C of
the paper. Parameters are counted in the file of pretrained weights if params.yaml names one, otherwise from the
architecture; nothing is downloaded. TSV-C and BitDelta depend on the shapes of all tensors; without the file only the
leading term is counted. The streams of stochastic_rounding and lossless are not counted; the results files have them.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from reproduction.models.families import family
from reproduction.plan.chain import pretrained_source
from reproduction.plan.params import FILE
from reproduction.plan.project import open_plan
from reproduction.results.tables import ParameterCounts
from tallmasks import methods
from tallmasks.cli import storage
from tallmasks.errors import OptionError

HEADER = ("model", "benchmark", "method", "formula_gbit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    storage.add_arguments(parser, required=False)


def run(arguments: argparse.Namespace) -> int:
    if arguments.parameters is not None:
        return storage.run(arguments)
    if not FILE.exists():
        raise OptionError(f"missing: --parameters P (a model's size); without it, run this in the folder of {FILE}")
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
                stored = counts.stored(methods.get(name), len(plan.tasks(model, benchmark)))
                table.writerow((model, benchmark, name, f"{stored:.4f}"))
    return 0
