"""Evaluate one model on one task: the pretrained model or the fine-tuned one."""

import torch

from job import Job, main
from model_io import load_model, load_task, new_evaluator, origins
from reproduction.evaluation.records import SPLITS
from tallmasks import methods
from tallmasks.vectors.checkpoints.opening import open_checkpoint


@main
def run(job: Job) -> None:
    model, method = load_model(job), methods.get(job.params["method"])
    evaluator = new_evaluator(job, model, [load_task(job)])
    if isinstance(method.usage, methods.FineTuned):
        weights = torch.from_numpy(open_checkpoint(job.input("checkpoint")).flat())
    else:
        weights = evaluator.built(method(pretrained=model.initial().cpu().numpy()))
    counts = {split: evaluator.as_is(split, weights) for split in SPLITS}
    coefficient = method.usage.coefficient_for(1) if isinstance(method.usage, methods.Fixed) else None
    result = evaluator.evaluation(method.name, counts, lambda _: weights, scaling_coefficient=coefficient)
    sources = origins(job, *SPLITS, "checkpoint")
    job.write_json(result.to_json() | ({"origins": sources} if sources else {}))
