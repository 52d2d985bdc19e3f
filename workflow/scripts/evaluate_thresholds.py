"""Evaluate consensus merging at each threshold k, with alpha tuned for each (figure 6)."""

from job import Job, main, say
from model_io import load_model
from reproduction.evaluation.protocols import Tuner
from sweep_io import evaluators, finetuned_validation
from tallmasks import methods
from tallmasks.masks.consensus import open_agreement
from tallmasks.methods.rows.masks_over_merges import keep_agreed
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector


@main
def run(job: Job) -> None:
    evaluator, _ = evaluators(job, load_model(job))
    tune = Tuner(evaluator, job.params["grid"], finetuned_validation(job))
    method = methods.consensus(job.params["merge"]).name
    merged, agreement = open_multi_task_vector(job.input("multi_task_vector")), open_agreement(job.input("agreement"))
    by_threshold = {}
    for k in job.params["thresholds"]:  # Wang et al. 2024, Eq. 8 and 9: k = 0 keeps all weights, k = T + 1 none
        evaluation = tune(method, keep_agreed(merged, agreement, k=k))
        say(f"k = {k}: scaling coefficient {evaluation.scaling_coefficient}")
        by_threshold[k] = evaluation.to_json()
    job.write_json({"thresholds": by_threshold})
