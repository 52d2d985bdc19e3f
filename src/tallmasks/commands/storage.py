"""Print what every method stores, for each model and benchmark of params.yaml, as CSV.

    tallmasks storage

In 1e9 bits, by the formulae of appendix C of the paper.  The counts of parameters come from the model's own file of
pretrained weights where params.yaml names one, else from its architecture alone: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from tallmasks import methods, models
from tallmasks.methods.bits import storage
from tallmasks.models.clip import tensor_names as naming
from tallmasks.plan.plan import Plan
from tallmasks.plan.project import open_plan
from tallmasks.store.tensor_files import open_tensors

HEADER = ("model", "benchmark", "method", "storage_gb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    plan = open_plan()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(HEADER)
    for model in plan.models:
        trainable, frozen = parameter_counts(plan, model)
        for benchmark in plan.benchmarks(model):
            for name in plan.method_names:
                stored = storage(
                    methods.get(name).storage,
                    tasks=len(plan.tasks(benchmark)),
                    trainable_parameters=trainable,
                    frozen_parameters=frozen,
                )
                table.writerow((model, benchmark, name, f"{stored.gigabits:.4f}"))
    return 0


def parameter_counts(plan: Plan, model: str) -> tuple[int, int]:
    """P' and F of a model."""
    (source,) = plan.pretrained(model).values()
    if isinstance(source, Path):
        return naming.parameter_counts(plan.model(model)["family"], open_tensors(source).shapes)
    return models.parameter_counts(plan.model(model))
