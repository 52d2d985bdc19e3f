"""Evaluates methods by their usages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.evaluation.choice import choose_coefficient, choose_per_task
from reproduction.evaluation.evaluator import Evaluator, Update, unpack_mask
from reproduction.evaluation.records import SPLITS, Evaluation, Score
from tallmasks import methods
from tallmasks.io.tensor_files import Layout, open_tensors
from tallmasks.masks.consensus import open_agreement
from tallmasks.masks.mask_grids import MaskGrid, open_mask_grid
from tallmasks.methods import Fixed, Input, Masked, Method, MethodInputs, Scaled
from tallmasks.methods.codec import coded_bytes
from tallmasks.methods.contract import MethodUpdates
from tallmasks.methods.inputs import AGREEMENT, MASK, MULTI_TASK_VECTOR, TASK_VECTOR
from tallmasks.methods.rows.parts.arrays_and_tensors import array
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector, open_multi_task_vector, open_task_vector


class Tuner:
    """Chooses alpha from an ascending grid on validation data, then evaluates once on test data.

    ``finetuned``: validation accuracies of the fine-tuned models, fractions [tasks]. ``zero_shot``: correct answers of
    theta_0 by split, [tasks]; if given, they are used for alpha = 0.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        grid: Sequence[float],
        finetuned: Sequence[float],
        zero_shot: Mapping[str, Sequence[Score]] | None = None,
    ) -> None:
        self._evaluator, self._grid, self._finetuned = evaluator, tuple(grid), finetuned
        self._zero_shot = zero_shot or {}

    def __call__(self, method: str, update: Update) -> Evaluation:
        """Evaluate theta_0 + alpha * update. ``method``: its name; ``update``: float32 [P']."""

        def counts(split: str, values: Sequence[float]) -> list[list[Score]]:
            if values[0] or split not in self._zero_shot:
                return self._evaluator.scaled(split, update, values)
            others = self._evaluator.scaled(split, update, values[1:])
            return [[score, *row] for score, row in zip(self._zero_shot[split], others, strict=True)]

        return self._chosen(method, counts, lambda value: self._evaluator.built(update, value))

    def over(self, method: str, updates: Callable[[float], Update]) -> Evaluation:
        """Evaluate theta_0 + updates(value), for a tuned value that is not a factor of the update."""

        def counts(split: str, values: Sequence[float]) -> list[list[Score]]:
            by_value = [self._evaluator.scaled(split, updates(value), [1.0]) for value in values]
            return [[score for (score,) in row] for row in zip(*by_value, strict=True)]

        return self._chosen(method, counts, lambda value: self._evaluator.built(updates(value)))

    def _chosen(
        self,
        method: str,
        counts: Callable[[str, Sequence[float]], list[list[Score]]],
        weights: Callable[[float], Update],
    ) -> Evaluation:
        evaluator = self._evaluator
        curve = counts("validation", self._grid)
        tasks = [task.name for task in evaluator.tasks]
        chosen = choose_coefficient(curve, evaluator.totals("validation"), self._finetuned, tasks)
        test = counts("test", [self._grid[chosen]])
        return evaluator.evaluation(
            method,
            {"validation": [row[chosen] for row in curve], "test": [row[0] for row in test]},
            lambda task: weights(self._grid[chosen]),
            scaling_coefficient=self._grid[chosen],
            grid=self._grid,
            curve=tuple(map(tuple, curve)),
        )


def updates_on(evaluator: Evaluator, method: Method, source: MethodInputs) -> MethodUpdates:
    """The updates of one method, computed on the evaluator's device."""

    def to_device(declared: Input, value: Any) -> Any:
        if declared.packed:
            return unpack_mask(value, source.layout.size, evaluator.model.device)
        return evaluator.to_device(value) if isinstance(value, np.ndarray) and value.ndim else value

    return MethodUpdates(method, source, to_device)


def evaluate(
    method: Method, source: MethodInputs, evaluator: Evaluator, tune: Tuner | None, mask_lambdas: Sequence[float]
) -> Evaluation:
    """Evaluate one method by its usage (see `tallmasks.methods`).

    The evaluator and the source have the same tasks in the same order. ``tune`` is used by the usage `Scaled`, and
    ``mask_lambdas``, the ascending grid, by `Masked`.
    """
    update = updates_on(evaluator, method, source)
    if isinstance(method.usage, Scaled):
        assert tune is not None
        if method.tuned is None:
            return tune(method.name, update())
        return tune.over(
            method.name, lambda value: method(multi_task_vector=source.merged(methods.tuned_merge(method, value)))
        )
    if isinstance(method.usage, Masked):
        return _masked(method, update, evaluator, mask_lambdas)
    if isinstance(method.usage, Fixed):
        coefficient = method.usage.coefficient_for(len(evaluator.tasks))
        return _one_model(method, update(), evaluator, coefficient, chosen=coefficient)
    counts = {split: evaluator.per_task(split, lambda task: iter([update(task)]), 1) for split in SPLITS}
    correct = {split: [row[0] for row in rows] for split, rows in counts.items()}
    sizes = _coded_bytes(method, source) if method.codec else ()
    return evaluator.evaluation(method.name, correct, lambda task: evaluator.built(update(task)), coded_bytes=sizes)


def _coded_bytes(method: Method, source: MethodInputs) -> tuple[int, ...]:
    """The bytes of each task's streams in a bundle."""
    assert method.codec is not None
    vectors, theta = [source.task_vector(task).flat for task in range(source.count)], array(source.pretrained)
    return tuple(coded_bytes(method.codec, tau, theta, source.layout, **method.values) for tau in vectors)


def _masked(method: Method, update: MethodUpdates, evaluator: Evaluator, mask_lambdas: Sequence[float]) -> Evaluation:
    def candidates(task: int) -> Iterator[Update]:
        return (update(task, lambda_index) for lambda_index in range(len(mask_lambdas)))

    curve = evaluator.per_task("validation", candidates, len(mask_lambdas))
    chosen = choose_per_task(curve)
    test = evaluator.per_task("test", lambda task: iter([update(task, chosen[task])]), 1)
    validation = [row[index] for row, index in zip(curve, chosen, strict=True)]
    return evaluator.evaluation(
        method.name,
        {"validation": validation, "test": [row[0] for row in test]},
        lambda task: evaluator.built(update(task, chosen[task])),
        mask_lambda=tuple(mask_lambdas[index] for index in chosen),
        grid=tuple(mask_lambdas),
        curve=tuple(map(tuple, curve)),
    )


def evaluate_chosen(method: Method, source: MethodInputs, evaluator: Evaluator, value: float) -> Evaluation:
    """Evaluate a merged model with the value that was chosen for it on the source's tasks.

    The evaluator can have other tasks than the source.
    """
    if method.tuned:
        update = method(multi_task_vector=source.merged(methods.tuned_merge(method, value)))
        return _one_model(method, update, evaluator, 1.0, chosen=value)
    return _one_model(method, updates_on(evaluator, method, source)(), evaluator, value, chosen=value)


def _one_model(method: Method, update: Update, evaluator: Evaluator, coefficient: float, chosen: float) -> Evaluation:
    correct = {split: [row[0] for row in evaluator.scaled(split, update, [coefficient])] for split in SPLITS}
    return evaluator.evaluation(
        method.name, correct, lambda task: evaluator.built(update, coefficient), scaling_coefficient=chosen
    )


class FromFiles:
    """A `tallmasks.methods.MethodInputs` that reads a method's inputs from artifacts.

    ``files``: by input, one artifact, or one per task in the order of ``tasks``. ``pretrained``: theta_0, float32 [P'].
    """

    def __init__(
        self, method: Method, tasks: Sequence[str], files: Mapping[Input, Sequence[Path]], pretrained: Any
    ) -> None:
        self._method, self._tasks, self._files, self.pretrained = method, tuple(tasks), files, pretrained

    @property
    def count(self) -> int:
        return len(self._tasks)

    def files(self, needed: Input) -> Sequence[Path]:
        return self._files[needed]

    @functools.cached_property
    def layout(self) -> Layout:
        for vector in (MULTI_TASK_VECTOR, TASK_VECTOR):
            if vector in self._files:
                return Layout.of(open_tensors(self._files[vector][0]))
        return self._bundle.layout

    @functools.cached_property
    def multi_task_vector(self) -> NDArray[np.float32]:
        return open_multi_task_vector(*self.files(MULTI_TASK_VECTOR))

    def merged(self, merge: str) -> NDArray[np.float32]:
        return merged_in_memory(merge, self._vectors)

    @functools.cached_property
    def agreement(self) -> NDArray[np.uint8]:
        return open_agreement(*self.files(AGREEMENT))

    @functools.cached_property
    def _bundle(self) -> MaskGrid:
        return open_mask_grid(*self.files(MASK))

    @functools.cached_property
    def _vectors(self) -> list[TaskVector]:
        return [open_task_vector(path) for path in self.files(TASK_VECTOR)]

    def task_vector(self, task: int) -> TaskVector:
        return self._vectors[task]

    def threshold(self, task: int) -> np.float32:
        return self._method.threshold(self.task_vector(task), self.count)

    def packed_mask(self, task: int, lambda_index: int) -> NDArray[np.uint8]:
        return self._bundle.packed_mask(self._tasks[task], self._bundle.mask_lambdas[lambda_index])


def merged_in_memory(merge: str, vectors: Sequence[TaskVector]) -> NDArray[np.float32]:
    """tau_MTL of a merge, float32 [P']."""
    out = np.empty(vectors[0].flat.size, np.float32)
    methods.get_merge(merge)(vectors, out)
    return out


class InMemory:
    """Merges, masks and agreements of task vectors, computed on first use and cached.

    ``pretrained``: theta_0, float32 [P']. ``mask_lambdas``: ascending. ``select`` returns the lambda chosen for each
    task by a TALL-mask method.
    """

    def __init__(
        self,
        vectors: Sequence[TaskVector],
        pretrained: NDArray[np.float32],
        mask_lambdas: Sequence[float],
        select: Callable[[Method], Sequence[float]],
    ) -> None:
        self.vectors, self.pretrained = list(vectors), pretrained
        self._mask_lambdas, self._select = tuple(mask_lambdas), select
        for part in ("merged", "planes", "agreement"):
            setattr(self, part, functools.cache(getattr(self, part)))

    def of(self, method: Method) -> MethodInputs:
        return _OneMethod(self, method)

    def merged(self, merge: str) -> NDArray[np.float32]:
        return merged_in_memory(merge, self.vectors)

    def planes(self, merge: str) -> list[NDArray[np.uint8]]:
        """Each task's masks for all lambdas, packed as in `tallmasks.masks`."""
        merged = self.merged(merge)
        shape = (len(self._mask_lambdas).bit_length(), -(-merged.size // 8))
        planes = [np.empty(shape, np.uint8) for _ in self.vectors]
        kernels.pack_levels([vector.flat for vector in self.vectors], merged, self._mask_lambdas, planes)
        return planes

    def agreement(self, merge: str) -> NDArray[np.uint8]:
        """n(p), how many tasks' chosen masks keep each weight, uint8 [P']."""
        selected = self._select(methods.masking(merge))
        out = np.empty(self.vectors[0].flat.size, np.uint8)
        kernels.count_agreement(self.planes(merge), [self._mask_lambdas.index(value) for value in selected], out)
        return out


class _OneMethod(FromFiles):
    def __init__(self, memory: InMemory, method: Method) -> None:
        super().__init__(method, [str(index) for index in range(len(memory.vectors))], {}, memory.pretrained)
        self._memory, self._merge = memory, str(method.merge)
        self._vectors, self.layout = memory.vectors, memory.vectors[0].layout

    @functools.cached_property
    def multi_task_vector(self) -> NDArray[np.float32]:
        return self._memory.merged(self._merge)

    @functools.cached_property
    def agreement(self) -> NDArray[np.uint8]:
        return self._memory.agreement(self._merge)

    def packed_mask(self, task: int, lambda_index: int) -> NDArray[np.uint8]:
        return kernels.packed_mask(self._memory.planes(self._merge)[task], lambda_index)
