"""What the steps behind figures 5 and 6 share: the examples that they look at, and what fine-tuned models score."""

from __future__ import annotations

from collections.abc import Mapping

from job import Job
from model_io import load_tasks, new_evaluator
from tallmasks.evaluation.counting import Evaluator, TaskData
from tallmasks.evaluation.records import SPLITS, read_evaluation
from tallmasks.evaluation.sweeps import sample, share
from tallmasks.models.families import Model


def evaluators(job: Job, model: Model) -> tuple[Evaluator, Evaluator]:
    """One for choices that all tasks share, which split the examples of a choice evenly.  One for choices of a task's
    own.  The test examples of both are the same."""
    images, tasks = job.params["images"], job.params["tasks"]
    limits = {split: images.get(split) for split in SPLITS}
    whole = load_tasks(job)
    shared = {split: share(limit, len(tasks)) for split, limit in limits.items()}

    def thinned(counts: Mapping[str, int | None]) -> Evaluator:
        some = [TaskData(task.name, {s: sample(task.splits[s], counts[s]) for s in SPLITS}) for task in whole]
        return new_evaluator(job, model, some)

    return thinned(shared), thinned(shared | {"validation": limits["validation"]})


def finetuned_validation(job: Job) -> list[float]:
    """Validation accuracy of each task's fine-tuned model, on all of its examples, in the order of the tasks."""
    evaluations = map(read_evaluation, job.inputs["fine_tuned"])
    return [float(evaluation.accuracy("validation")[0]) for evaluation in evaluations]
