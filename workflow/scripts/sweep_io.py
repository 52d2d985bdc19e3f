"""What the steps behind figures 5 and 6 share: the examples that they look at, and what fine-tuned models score."""

from __future__ import annotations

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
    alone = shared | {"validation": limits["validation"]}
    return (
        new_evaluator(job, model, [_thinned(task, shared) for task in whole]),
        new_evaluator(job, model, [_thinned(task, alone) for task in whole]),
    )


def _thinned(task: TaskData, counts: dict[str, int | None]) -> TaskData:
    return TaskData(task.name, {split: sample(task.splits[split], counts[split]) for split in SPLITS})


def finetuned_validation(job: Job) -> list[float]:
    """Validation accuracy of each task's fine-tuned model, on all of its examples, in the order of the tasks."""
    evaluations = map(read_evaluation, job.inputs["fine_tuned"])
    return [float(evaluation.accuracy("validation")[0]) for evaluation in evaluations]
