"""Loads a job's model, examples and evaluator from store files."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Any

from job import Job, say
from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.evaluation.records import SPLITS
from reproduction.models import cuda
from reproduction.models.families import Examples, Model, Precision, family
from tallmasks.io.tensor_files import read_metadata


def load_model(job: Job, precision: Precision | None = None) -> Model:
    """The pretrained model on the job's device; ``precision`` defaults to that of the recipe's `evaluation`."""
    precision = precision or job.params.get("evaluation", {}).get("precision", "float32")
    with cuda.reporting_out_of_memory("the model's weights") if job.gpus else nullcontext():
        return family(job.params).load(job.params, job.input("pretrained"), precision, "cuda" if job.gpus else "cpu")


def new_evaluator(job: Job, model: Model, tasks: Sequence[TaskData]) -> Evaluator:
    return Evaluator(model, tasks, job.params["evaluation"]["batch_size"], say, unit=family(job.params).unit)


def load_examples(job: Job, role: str) -> Examples:
    model_family = family(job.params)
    files = {needed: job.input(needed) for needed in model_family.task_inputs if needed in job.inputs}
    return model_family.examples(job.input(role), files)


def load_task(job: Job) -> TaskData:
    return TaskData(job.params["task"], {split: load_examples(job, split) for split in SPLITS})


def load_tasks(job: Job, splits: Sequence[str] = SPLITS, only: Collection[str] = ()) -> list[TaskData]:
    """The tasks of a job on several tasks, or ``only`` some of them."""
    model_family = family(job.params)
    files = {role: job.by_task(role) for role in (*splits, *(f"{needed}s" for needed in model_family.task_inputs))}
    tasks = []
    for task in only or job.params["tasks"]:
        of_task = {needed: files[f"{needed}s"][task] for needed in model_family.task_inputs}
        tasks.append(TaskData(task, {split: model_family.examples(files[split][task], of_task) for split in splits}))
    return tasks


def origins(job: Job, *roles: str) -> dict[str, Any]:
    """The sources of the input files, with warnings, by role; nothing for data shipped with the project."""
    metadata = {role: read_metadata(job.input(role)) for role in roles if role in job.inputs}
    return {role: json.loads(fields["origin"]) for role, fields in metadata.items() if "origin" in fields}
