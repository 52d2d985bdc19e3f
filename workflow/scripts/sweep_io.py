"""Shared by the evaluations for figures 5 and 6: samples of the examples, and accuracies of the fine-tuned models."""

from __future__ import annotations

from collections.abc import Mapping

from job import Job
from model_io import load_tasks, new_evaluator
from reproduction.evaluation.counting import Evaluator, TaskData
from reproduction.evaluation.records import SPLITS, read_evaluation
from reproduction.evaluation.sweeps import sample, share
from reproduction.models.families import Model


def evaluators(job: Job, model: Model) -> tuple[Evaluator, Evaluator]:
    """One evaluator for values shared by all tasks, and one for values chosen per task.

    Tasks divide the validation examples evenly in the first; each uses the full number in the second.
    """
    images, tasks = job.params["images"], job.params["tasks"]
    limits = {split: images.get(split) for split in SPLITS}
    whole = load_tasks(job)
    shared = {split: share(limit, len(tasks)) for split, limit in limits.items()}

    def sampled(counts: Mapping[str, int | None]) -> Evaluator:
        samples = [TaskData(task.name, {s: sample(task.splits[s], counts[s]) for s in SPLITS}) for task in whole]
        return new_evaluator(job, model, samples)

    return sampled(shared), sampled(shared | {"validation": limits["validation"]})


def finetuned_validation(job: Job) -> list[float]:
    """Validation accuracy of each task's fine-tuned model on all examples, in the order of the tasks."""
    evaluations = map(read_evaluation, job.inputs["fine_tuned"])
    return [float(evaluation.accuracy("validation")[0]) for evaluation in evaluations]
