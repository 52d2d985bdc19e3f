"""What a merge must know of one task's data: of its fine-tuned network, over some training examples."""

from collections.abc import Callable
from typing import Any

import torch

from job import Job, say
from model_io import load_examples, load_model
from tallmasks.evaluation.sweeps import sample
from tallmasks.io.tensor_files import write_tensors
from tallmasks.models.families import family
from tallmasks.vectors.checkpoints.opening import open_checkpoint


def write_statistic(job: Job, statistic: Callable[[Any, Any], Any]) -> None:
    """Write a statistic ``(model, examples) -> tensors`` of a job's checkpoint."""
    model = load_model(job, "float32")
    weights = torch.from_numpy(open_checkpoint(job.input("checkpoint")).flat())
    model.use(weights.to(model.device))
    examples = sample(load_examples(job, "examples"), job.params["count"])
    tensors = statistic(model, examples)
    write_tensors(job.output, tensors, job.metadata)
    say(f"{job.params['task']}: {len(tensors)} tensors from {len(examples)} training {family(job.params).unit}")
