"""Store files as the objects of the package: models, examples, heads; and progress as people read it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from job import Job
from tallmasks import models
from tallmasks.evaluation.counting import Evaluator, Examples, TaskData
from tallmasks.store.tensor_files import load_state, open_tensors
from tallmasks.training.finetuning import Progress, TrainingImages


def load_model(job: Job, precision: models.Precision | None = None) -> models.Model:
    """The pretrained model that a job's recipe describes, in the precision of its `evaluation` if none is given.

    On the GPU that the job was given, and on no other."""
    precision = precision or job.params.get("evaluation", {}).get("precision", "float32")
    return models.load(job.params, job.input("pretrained"), precision, "cuda" if job.gpus else "cpu")


def new_evaluator(job: Job, model: models.Model, tasks: Sequence[TaskData]) -> Evaluator:
    """An evaluator with the batch size of the job's recipe, which reports into its log."""
    return Evaluator(model, tasks, job.params["evaluation"]["batch_size"], say)


def load_examples(path: Path) -> Examples:
    tensors = open_tensors(path)
    return Examples(tensors.view("images"), tensors.read("labels"))


def load_training_images(path: Path) -> TrainingImages:
    tensors = open_tensors(path)
    sizes = tensors.read("sizes") if "sizes" in tensors.names else None
    return TrainingImages(tensors.view("images"), tensors.read("labels"), sizes)


def load_head(path: Path) -> NDArray[np.float32]:
    return load_state(path)["head"]


def load_task(name: str, head: Path, splits: Mapping[str, Path]) -> TaskData:
    return TaskData(name, load_head(head), {split: load_examples(path) for split, path in splits.items()})


def origins(job: Job, *roles: str) -> dict[str, Any]:
    """What the input files of some roles know of where their content is from and what was not as expected there.

    By role; nothing of files that are made from what ships with the project.
    """
    metadata = {role: open_tensors(job.input(role)).metadata for role in roles if role in job.inputs}
    return {role: json.loads(found["origin"]) for role, found in metadata.items() if "origin" in found}


def say(line: str) -> None:
    """A line of progress into the job's log."""
    print(line, flush=True)


def reporter(title: str) -> Callable[[Progress], None]:
    """How a training's progress is told: a bar where somebody watches, lines in a log."""
    if not sys.stdout.isatty():
        return lambda progress: say(str(progress))
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeRemainingColumn())
    task = bar.add_task(title, now="")
    bar.start()

    def show(progress: Progress) -> None:
        bar.update(task, total=progress.steps, completed=progress.step, now=str(progress))
        if progress.step == progress.steps:
            bar.stop()

    return show
