"""Evaluate consensus merging for every threshold k, alpha tuned at each (figure 6)."""

from job import Job
from model_io import load_model, say
from sweep_io import evaluators, finetuned_validation
from tallmasks import methods
from tallmasks.evaluation.protocols import Tuner
from tallmasks.evaluation.sweeps import thresholds
from tallmasks.masks.consensus import open_agreement
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector


def run(job: Job) -> None:
    evaluator, _ = evaluators(job, load_model(job))
    tune = Tuner(evaluator, job.params["grid"], finetuned_validation(job))
    method = methods.consensus(job.params["merge"]).name
    merged, agreement = open_multi_task_vector(job.input("multi_task_vector")), open_agreement(job.input("agreement"))
    ks = job.params["thresholds"]
    by_threshold = {}
    for k, evaluation in zip(ks, thresholds(tune, method, merged, agreement, ks), strict=True):
        say(f"k = {k}: scaling coefficient {evaluation.scaling_coefficient}")
        by_threshold[k] = evaluation.to_json()
    job.write_json({"thresholds": by_threshold})
