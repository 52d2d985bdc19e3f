"""Many merged models in one process: what figures 5 and 6 of Wang et al. 2024 are evaluated with.

Merges, masks and consensus masks are made in memory, so that a sweep costs its evaluations and little else.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tallmasks import methods
from tallmasks.evaluation.choice import choose_coefficient, choose_per_task
from tallmasks.evaluation.counting import Evaluator, Examples
from tallmasks.evaluation.records import SPLITS, Evaluation
from tallmasks.masks.consensus import keep_agreed
from tallmasks.methods import Method, Vector
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector


def share(images: int | None, tasks: int) -> int | None:
    """How many images each of T tasks gives to `images` in all, at least one; None stands for every image."""
    return None if images is None else max(1, images // tasks)


def sample(examples: Examples, count: int | None) -> Examples:
    """`count` of the examples, drawn without replacement and always the same ones; all if there are no more.

    The stream is the one that NumPy has promised never to change (NEP 19).
    """
    if count is None or count >= len(examples.labels):
        return examples
    drawn = np.sort(np.random.RandomState(0).permutation(len(examples.labels))[:count])
    return Examples(examples.images[drawn], examples.labels[drawn])


class Tuner:
    """Chooses alpha on validation data and reads the test data once, for one update after the other.

    Args:
        evaluator: the model with its tasks.
        grid: coefficients, ascending.
        finetuned: validation accuracy of each task's fine-tuned model, fractions [tasks].
    """

    def __init__(self, evaluator: Evaluator, grid: Sequence[float], finetuned: Sequence[float]) -> None:
        self._evaluator, self._grid, self._finetuned = evaluator, tuple(grid), finetuned

        self._still = functools.cache(self._pretrained)

    def _pretrained(self, split: str) -> list[int]:
        """Right answers of theta_0, [tasks], which alpha = 0 gives whatever the update."""
        nothing = np.zeros(self._evaluator.model.pretrained_flat().numel(), np.float32)
        return [row[0] for row in self._evaluator.scaled(split, nothing, [0.0])]

    def _counts(self, split: str, update: Vector, coefficients: Sequence[float]) -> list[list[int]]:
        """Right answers, [tasks][coefficients]; those of the pretrained model are counted once for all updates."""
        moving = [value for value in coefficients if value and update.any()]
        counted = self._evaluator.scaled(split, update, moving) if moving else [[] for _ in self._evaluator.tasks]
        if len(moving) == len(coefficients):
            return counted
        found = []
        for row, still in zip(counted, self._still(split), strict=True):
            by_value = dict(zip(moving, row, strict=True))
            found.append([by_value.get(value, still) for value in coefficients])
        return found

    def __call__(self, method: str, update: Vector) -> Evaluation:
        """The evaluation of theta_0 + alpha * update, float32 [P'], under the name of a method."""
        tasks = tuple(task.name for task in self._evaluator.tasks)
        total = {split: self._evaluator.totals(split) for split in SPLITS}
        curve = self._counts("validation", update, self._grid)
        chosen = choose_coefficient(curve, total["validation"], self._finetuned, tasks)
        test = self._counts("test", update, [self._grid[chosen]])
        return Evaluation(
            method=method,
            tasks=tasks,
            total=total,
            correct={"validation": [row[chosen] for row in curve], "test": [row[0] for row in test]},
            scaling_coefficient=self._grid[chosen],
            grid=self._grid,
            curve=tuple(map(tuple, curve)),
        )


def thresholds(
    tune: Tuner, method: str, multi_task_vector: Vector, agreement: NDArray[np.uint8], ks: Iterable[int]
) -> Iterator[Evaluation]:
    """Consensus merging (Wang et al. 2024, Eq. 8 and 9), one evaluation after the other: k = 0 is the merge itself, and
    for k > T no weight is left."""
    for k in ks:
        yield tune(method, keep_agreed(multi_task_vector, agreement, k))


class Subset:
    """One set of tasks with its merges, masks and agreements, made when they are asked for.

    Args:
        vectors: the task vectors by task, in the order of the evaluators' tasks.
        pretrained: theta_0, float32 [P'].
        tune: chooses alpha; its evaluator has the images for that.
        own: the evaluator whose validation images mask lambdas are chosen on.
        lambdas: the grid of mask lambdas, ascending.
    """

    def __init__(
        self,
        vectors: Mapping[str, TaskVector],
        pretrained: Vector,
        tune: Tuner,
        own: Evaluator,
        lambdas: Sequence[float],
    ) -> None:
        self._vectors, self._pretrained = list(vectors.values()), pretrained
        self._tasks, self._tune, self._own, self._lambdas = tuple(vectors), tune, own, tuple(lambdas)
        for part in ("_merged", "_planes", "_masked"):
            setattr(self, part, functools.cache(getattr(self, part)))

    def evaluate(self, method: Method) -> Evaluation:
        """One method on this set of tasks, by its protocol (see `tallmasks.methods`)."""
        if method.protocol == "scaled":
            return self._tune(method.name, self._update(method))
        if method.protocol == "masked":
            return self._masked(method)
        correct = {split: self._fixed(method, split) for split in SPLITS}
        return self._evaluation(method, correct, scaling_coefficient=self._coefficient(method))

    def _fixed(self, method: Method, split: str) -> list[int]:
        """Right answers of a method that chooses nothing."""
        coefficient = self._coefficient(method)
        if coefficient is not None:
            return [row[0] for row in self._own.scaled(split, self._update(method), [coefficient])]
        counts = self._own.own(split, lambda task: iter([self._update(method, task)]), 1)
        return [row[0] for row in counts]

    def _coefficient(self, method: Method) -> float | None:
        return method.coefficient(len(self._tasks)) if method.coefficient else None

    def _masked(self, method: Method) -> Evaluation:
        """Each task's mask lambda by its own validation images, then its test images once."""
        places = range(len(self._lambdas))
        curve = self._own.own("validation", lambda t: (self._update(method, t, i) for i in places), len(self._lambdas))
        chosen = choose_per_task(curve)
        test = self._own.own("test", lambda t: iter([self._update(method, t, chosen[t])]), 1)
        correct = {
            "validation": [row[place] for row, place in zip(curve, chosen, strict=True)],
            "test": [row[0] for row in test],
        }
        return self._evaluation(
            method,
            correct,
            mask_lambda=tuple(self._lambdas[place] for place in chosen),
            grid=self._lambdas,
            curve=tuple(map(tuple, curve)),
        )

    def _evaluation(self, method: Method, correct: Mapping[str, Sequence[int]], **chosen: object) -> Evaluation:
        total = {split: self._own.totals(split) for split in SPLITS}
        return Evaluation(method.name, self._tasks, total, correct, **chosen)  # type: ignore[arg-type]

    def _update(self, method: Method, task: int = 0, place: int = 0) -> Vector:
        """The update of a method, for a task and a place of the lambda grid where it looks at these."""
        make = {
            "pretrained": lambda: self._pretrained,
            "task_vector": lambda: self._vectors[task].flat,
            "multi_task_vector": lambda: self._merged(str(method.merge)),
            "agreement": lambda: self._agreement(str(method.merge)),
            "mask": lambda: self._mask(str(method.merge), task, place),
            "threshold": lambda: method.threshold(self._vectors[task], len(self._tasks)),
        }
        return method(**{name: make[name]() for name in method.needs})

    def _merged(self, merge: str) -> Vector:
        out = np.empty_like(self._pretrained)
        methods.get_merge(merge)(self._vectors, out)
        return out

    def _planes(self, merge: str) -> list[NDArray[np.uint8]]:
        """Every task's masks for the whole grid, as `tallmasks.masks.bundles` packs them."""
        shape = (len(self._lambdas).bit_length(), -(-self._pretrained.size // 8))
        planes = [np.empty(shape, np.uint8) for _ in self._tasks]
        kernels.pack_levels([vector.flat for vector in self._vectors], self._merged(merge), self._lambdas, planes)
        return planes

    def _mask(self, merge: str, task: int, place: int) -> NDArray[np.bool_]:
        bits = kernels.packed_mask(self._planes(merge)[task], place)
        return np.unpackbits(bits, count=self._pretrained.size, bitorder="little").view(np.bool_)

    def _agreement(self, merge: str) -> NDArray[np.uint8]:
        """n(p) of the masks that the TALL-mask method on this merge selects."""
        selected = self._masked(methods.masking(merge)).mask_lambda or ()
        out = np.empty(self._pretrained.size, np.uint8)
        kernels.count_agreement(self._planes(merge), [self._lambdas.index(value) for value in selected], out)
        return out
