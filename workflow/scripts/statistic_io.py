"""What the steps on a task's data statistics share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from job import Job
from model_io import load_examples, say
from tallmasks.evaluation.sweeps import sample
from tallmasks.models.families import Examples, Model, family
from tallmasks.store.tensor_files import open_tensors, write_tensors


def write_statistic(
    job: Job, model: Model, compute: Callable[[Any, Examples], Mapping[str, NDArray[np.float32]]]
) -> None:
    """What is computed of the fine-tuned model of a job's task and some of its training examples, by tensor."""
    weights = torch.from_numpy(np.array(open_tensors(job.input("checkpoint")).flat()))
    model.use(weights.to(model.device))
    examples = sample(load_examples(job, "examples"), job.params["count"])
    found = compute(model, examples)
    write_tensors(job.output, found, job.metadata)
    say(f"{job.params['task']}: {len(found)} tensors from {len(examples)} training {family(job.params).unit}")
