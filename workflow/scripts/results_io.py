"""Reads evaluations for tables and writes results with their provenance."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from job import Job
from reproduction.artifacts.labels import FILES, as_json, machine
from reproduction.evaluation.records import Evaluation, read_evaluation, read_origins
from reproduction.models.families import family
from reproduction.results.tables import ParameterCounts
from tallmasks import __version__
from tallmasks.io.atomic_files import atomic_path
from tallmasks.io.tensor_files import read_metadata

PACKAGES = ("torch", "open_clip_torch", "numpy", "numba", "safetensors", "snakemake", "dvc", "pandas")


def evaluations_of(job: Job, seed: int) -> tuple[list[Evaluation], Evaluation]:
    """The evaluations of one seed's rows in the order of the recipe, and of the fine-tuned models."""
    tasks = job.params["tasks"]
    by_method = {one.method: one.in_order(tasks) for one in map(read_evaluation, job.inputs[f"{seed}/evaluations"])}
    single_task: dict[str, dict[str, Evaluation]] = {}
    for one in map(read_evaluation, job.inputs[f"{seed}/task_evaluations"]):
        single_task.setdefault(one.method, {})[one.tasks[0]] = one
    for method, by_task in single_task.items():
        by_method[method] = Evaluation.joined([by_task[task] for task in tasks])
    return [by_method[method] for method in job.params["methods"]], by_method["fine_tuned"]


def origins_of(job: Job, seed: int) -> dict[str, dict[str, Any]]:
    """Sources, with warnings, of the pretrained weights and of each task's data and imported checkpoint."""
    metadata = read_metadata(job.input("pretrained"))
    sources = {"pretrained": json.loads(metadata["origin"])} if "origin" in metadata else {}
    return sources | read_origins(job.inputs[f"{seed}/task_evaluations"])


def counts_of(job: Job) -> ParameterCounts:
    return ParameterCounts.of(family(job.params), job.params, job.input("pretrained"))


def versions(params: Mapping[str, Any]) -> dict[str, str]:
    """Versions of this package, Python and the libraries, including those of the model's family."""
    by_package = {"tallmasks": __version__, "python": platform.python_version()}
    imports = family(params).imports if "family" in params else ()
    for name in (*PACKAGES, *(module.split(".")[0] for module in imports)):
        with suppress(PackageNotFoundError):  # not the name of a distribution
            by_package.setdefault(name, version(name))
    return by_package


def publish(job: Job, files: Mapping[str, Any], further: Mapping[str, Any] = {}) -> None:
    """Write results files to the job's folder, and their provenance with digests and `further` fields.

    Old files are replaced only after all new ones are on disk.

    Args:
        files: str, bytes or a memory-mapped array of bytes, by name.
        further: fields of the provenance; empty ones are left out.
    """
    contents = {name: one.encode() if isinstance(one, str) else memoryview(one) for name, one in files.items()}
    provenance = {
        FILES: {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        "versions": versions(job.params),
        "machine": machine(job.threads),
        **{name: value for name, value in {"finetuning_seeds": job.params.get("seeds"), **further}.items() if value},
    }
    text = json.dumps(as_json(provenance, job.recipe), indent=1) + "\n"
    with ExitStack() as renamed:  # on exit, in reverse order: the provenance last
        for name, content in {job.outputs["provenance"].name: text.encode(), **contents}.items():
            renamed.enter_context(atomic_path(job.folder / name, len(content))).write_bytes(content)
