"""Compute a statistic of one task's data with its fine-tuned network, for merges that need it."""

from typing import Any

import torch

from job import Job, main, say
from model_io import load_examples, load_model
from reproduction.evaluation.data_statistics import COMPUTED
from reproduction.evaluation.sweeps import sample
from reproduction.models.families import family
from tallmasks.io.tensor_files import write_tensors
from tallmasks.vectors.checkpoints.opening import open_checkpoint


@main
def run(job: Job) -> None:
    model: Any = load_model(job, "float32")
    weights = torch.from_numpy(open_checkpoint(job.input("checkpoint")).flat())
    model.use(weights.to(model.device))
    examples = sample(load_examples(job, "examples"), job.params["count"])
    tensors = COMPUTED[job.params["statistic"]](model, examples)
    write_tensors(job.output, tensors, job.metadata)
    say(f"{job.params['task']}: {len(tensors)} tensors from {len(examples)} training {family(job.params).unit}")
