"""Samples of the examples, and evaluations of many merged models in one process (figures 5 and 6)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.evaluation.method_evaluation import InMemory, Tuner, evaluate
from reproduction.evaluation.records import Evaluation
from reproduction.models.families import Examples
from tallmasks.methods import Masked, Method, Scaled, Vector
from tallmasks.vectors.task_vectors import TaskVector


def sample(examples: Examples, count: int | None) -> Examples:
    """A fixed random sample of ``count`` examples; all if there are fewer or ``count`` is None."""
    if count is None or count >= len(examples):
        return examples
    # NumPy guarantees that this stream never changes (NEP 19)
    return examples[np.sort(np.random.RandomState(0).permutation(len(examples))[:count])]


def sampled(
    tasks: Sequence[TaskData], images: Mapping[str, int], by_task: Mapping[str, int | None] = {}
) -> list[TaskData]:
    """Tasks with a fixed random sample of their examples.

    Args:
        images: the number of examples over all tasks, by split (default: all examples).
        by_task: the number of examples of each task, by split; replaces that of ``images``.
    """
    counts = {split: max(1, count // len(tasks)) for split, count in images.items()} | dict(by_task)
    return [
        TaskData(task.name, {split: sample(examples, counts.get(split)) for split, examples in task.splits.items()})
        for task in tasks
    ]


class TaskSubset:
    """Evaluates methods on one set of tasks, sharing merges, masks and agreements in memory.

    Args:
        vectors: by task, in the order of the evaluators' tasks.
        pretrained: theta_0, float32 [P'].
        tuner: returns the `Tuner` for a grid of alpha.
        alone: evaluates methods without alpha; mask lambdas are chosen on its validation examples.
        grids: by the keys of `grids` in params.yaml.
    """

    def __init__(
        self,
        vectors: Mapping[str, TaskVector],
        pretrained: Vector,
        tuner: Callable[[Sequence[float]], Tuner],
        alone: Evaluator,
        grids: Mapping[str, Sequence[float]],
    ) -> None:
        self._alone, self._grids = alone, grids
        self._tuner = functools.cache(tuner)
        self._masked: dict[str, Evaluation] = {}
        self._memory = InMemory(list(vectors.values()), pretrained, grids["mask_lambda"], self._selected)

    def evaluate(self, method: Method) -> Evaluation:
        if method.name not in self._masked:
            tune = self._tuner(method.usage.grid(self._grids)) if isinstance(method.usage, Scaled) else None
            scores = evaluate(method, self._memory.of(method), self._alone, tune, self._grids["mask_lambda"])
            if not isinstance(method.usage, Masked):
                return scores
            self._masked[method.name] = scores
        return self._masked[method.name]

    def _selected(self, method: Method) -> Sequence[float]:
        return self.evaluate(method).mask_lambda or ()
