"""Store files as the objects of the package: models, examples, heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from job import Job
from tallmasks import models
from tallmasks.checkpoints import load_state
from tallmasks.evaluate import Examples, TaskData


def load_model(job: Job) -> models.Model:
    """The pretrained model that a job's recipe describes."""
    return models.load(job.params, job.input("pretrained"))


def load_examples(path: Path) -> Examples:
    tensors = load_state(path)
    return Examples(tensors["images"], tensors["labels"])


def load_head(path: Path) -> NDArray[np.float32]:
    return load_state(path)["head"]


def load_task(name: str, head: Path, splits: Mapping[str, Path]) -> TaskData:
    return TaskData(name, load_head(head), {split: load_examples(path) for split, path in splits.items()})


def say(line: str) -> None:
    """A line of progress into the job's log."""
    print(line, flush=True)
