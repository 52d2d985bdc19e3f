"""From store files to the evaluations of one seed's table, and the provenance of a results folder."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from job import Job
from tallmasks import __version__
from tallmasks.artifacts.folders import PROVENANCE
from tallmasks.evaluation.records import Evaluation, read_evaluation, read_origins
from tallmasks.io.atomic_files import whole
from tallmasks.io.seals import CONTENT, SEAL, content_of_json, seal_of
from tallmasks.io.tensor_files import read_metadata
from tallmasks.models.families import family

PACKAGES = ("torch", "open_clip_torch", "numpy", "numba", "safetensors", "snakemake", "dvc", "pandas")


def evaluations_of(job: Job, seed: int) -> tuple[list[Evaluation], Evaluation]:
    """Every row of one seed's table in the order of the recipe, with the tasks in the benchmark's order; and the
    fine-tuned models, which may be a row or not."""
    tasks = job.params["tasks"]
    together = map(read_evaluation, job.inputs[f"{seed}/evaluations"])
    by_method = {one.method: one.in_order(tasks) for one in together}
    alone: dict[str, dict[str, Evaluation]] = {}
    for one in map(read_evaluation, job.inputs[f"{seed}/task_evaluations"]):
        alone.setdefault(one.method, {})[one.tasks[0]] = one
    by_method |= {method: Evaluation.joined([by_task[task] for task in tasks]) for method, by_task in alone.items()}
    return [by_method[method] for method in job.params["methods"]], by_method["fine_tuned"]


def origins_of(job: Job, seed: int) -> dict[str, dict[str, Any]]:
    """Where the pretrained weights are from, and by task its data and an imported checkpoint; and what was not as
    expected there."""
    weights = read_metadata(job.input("pretrained"))
    sources = {"pretrained": json.loads(weights["origin"])} if "origin" in weights else {}
    return sources | read_origins(job.inputs[f"{seed}/task_evaluations"])


def versions(params: Mapping[str, Any]) -> dict[str, str]:
    """What the results were written with: this package, Python, the libraries of everybody and those of the family."""
    by_package = {"tallmasks": __version__, "python": platform.python_version()}
    imports = family(params).imports if "family" in params else ()
    for name in (*PACKAGES, *(module.split(".")[0] for module in imports)):
        with suppress(PackageNotFoundError):  # a package whose distribution is called otherwise
            by_package.setdefault(name, version(name))
    return by_package


def publish(
    job: Job, files: Mapping[str, Any], facts: Mapping[str, Any] = {}, provenance_name: str = PROVENANCE
) -> None:
    """Write a results folder, or some files of it: the files, then the provenance that vouches for them.

    Each is text, bytes, or the array of its bytes, mapped into memory.  No file takes the place of an older one
    before all of them are on the disk.  Empty facts are left out.
    """
    folder = job.outputs["folder"]
    contents = {name: one.encode() if isinstance(one, str) else memoryview(one) for name, one in files.items()}
    vouched = {"sha256": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}}
    facts = {name: fact for name, fact in {"finetuning_seeds": job.params.get("seeds"), **facts}.items() if fact}
    provenance = {**job.facts, **vouched, "versions": versions(job.params), **facts}
    provenance[CONTENT] = content_of_json(vouched)
    provenance[SEAL] = seal_of(provenance)
    text = json.dumps(provenance, indent=1) + "\n"
    with ExitStack() as renamed:  # in the opposite order
        for name, content in {provenance_name: text.encode(), **contents}.items():
            renamed.enter_context(whole(folder / name, len(content))).write_bytes(content)
