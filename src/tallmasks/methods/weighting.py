"""Weights and densities of tasks in a merge: how much each task vector counts, and which fraction of it is kept.

Each task vector is made sparse to the task's density, by the merge applied to that task alone, and multiplied by the
task's weight. The results are combined as the merge declares (`Merge.sparsify` and `Merge.combine`). With `normalize`
each sum is divided by the weights of the tasks in it. mergekit has the same order
(merge_methods/generalized_task_arithmetic.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from tallmasks.errors import TallmasksError
from tallmasks.methods import registry
from tallmasks.methods.merges import Merge, TensorPiece, Vector
from tallmasks.methods.rows.parts.elected_signs import agreeing_or_plus
from tallmasks.parallel import cached
from tallmasks.vectors import kernels
from tallmasks.vectors.lazy_vectors import LazyVector
from tallmasks.vectors.task_vectors import TaskVector

Vectors = Sequence[Vector]
Apply = Callable[[Vectors, TensorPiece], Vector]

TRIMS = ("model", "tensor")


@dataclass(frozen=True)
class Weighting:
    """How the tasks count in a merge. A task that is not listed has weight 1 and the merge's own density.

    Attributes:
        weights: finite number by task.
        densities: number in (0, 1] by task.
        trim: TIES keeps the largest weights of the whole "model", or of each "tensor" as mergekit does.
        normalize: divide by the sum of the weights (default: if the merge is a mean).
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    densities: Mapping[str, float] = field(default_factory=dict)
    trim: str = "model"
    normalize: bool | None = None

    def __bool__(self) -> bool:
        """True if anything differs from the plain merge."""
        return bool(self.weights or self.densities or self.trim != "model" or self.normalize is not None)

    def check(self, merge: Merge, whose: str) -> None:
        """Raises TallmasksError if a merge does not support these weights, densities or trimming."""
        if merge.combine is None:
            able = ", ".join(name for name in registry.merge_names() if registry.get_merge(name).combine)
            raise TallmasksError(f"{whose} does not support task weights; expected a method based on one of: {able}")
        if self.densities and merge.sparsify is None:
            raise TallmasksError(f"{whose} keeps every weight, so it has no density; leave it out, or use ties")
        if self.trim == "tensor" and merge.sparsify != "keep":
            raise TallmasksError(f"{whose} does not trim; leave out trim, or use ties")


class WeightedMerge:
    """A merge with task weights, called like the result of `Merge.bind` with slices of the unweighted task vectors.

    ``merge`` has passed `Weighting.check`; ``task_vectors`` are in the order of ``tasks``.
    """

    def __init__(
        self, merge: Merge, task_vectors: Sequence[TaskVector], tasks: Sequence[str], of_tasks: Weighting
    ) -> None:
        self._merge, self._vectors, self._trim = merge, task_vectors, of_tasks.trim
        self._weights = np.array([of_tasks.weights.get(task, 1.0) for task in tasks], np.float32)
        self._densities = [of_tasks.densities.get(task) for task in tasks]
        self._normalize = merge.combine == "disjoint_mean" if of_tasks.normalize is None else of_tasks.normalize
        self._alone, self._limit = cached(self._made_sparse), cached(self._limit_in)
        if merge.combine != "sum" and merge.over == "tensors":
            self._combined: Apply = lambda vectors, piece: agreeing_or_plus(vectors, mean=False)
        else:
            combined = registry.get_merge("sum" if merge.combine == "sum" else "ties_sum:keep=1.0")
            self._combined = combined.bind([self._weighted_vector(number) for number in range(len(task_vectors))])

    def weighted(self, vectors: Vectors) -> list[Vector]:
        """The vectors times their weights, not sparse, as masks need them."""
        return [vector * weight for vector, weight in zip(vectors, self._weights, strict=True)]

    def __call__(self, vectors: Vectors, piece: TensorPiece) -> Vector:
        weighted = self.weighted([self._sparse(number, vector, piece) for number, vector in enumerate(vectors)])
        merged = self._combined(weighted, piece)
        if not self._normalize:
            return merged
        if self._merge.combine == "sum":
            whole = self._weights.sum()
            return merged if abs(whole) < 1e-8 else merged / whole
        divisor = np.zeros_like(merged)
        for weight, vector in zip(self._weights, weighted, strict=True):
            divisor += weight * (np.sign(vector) == np.sign(merged))
        divisor[divisor == 0] = 1
        return merged / divisor

    def _sparse(self, number: int, vector: Vector, piece: TensorPiece) -> Vector:
        if self._trim == "tensor":
            return np.where(abs(vector) >= self._limit(number, piece.name), vector, np.float32(0))
        return self._alone(number)([vector], piece)

    def _made_sparse(self, number: int) -> Apply:
        """The merge bound to one task; applied to that task alone it only makes it sparse."""
        chosen, vector, density = dict(self._merge.chosen), self._vectors[number], self._densities[number]
        if density is not None:
            option = self._merge.options[str(self._merge.sparsify)]
            chosen[option.name] = option.checked(
                1 - density if option.name == "drop" else density, f"density {density}"
            )
            if len(set(self._densities)) > 1:  # a plain TaskVector computes its own threshold
                vector = TaskVector(vector.flat, vector.layout, {}, vector.frozen, model=vector.model)
        return replace(self._merge, chosen=chosen).bind([vector])

    def _limit_in(self, number: int, tensor: str) -> np.float32:
        """The smallest magnitude kept in a task's tensor of n values: keeps max(1, int(density * n)), plus ties."""
        density, part = self._densities[number], self._vectors[number].layout.parts[tensor]
        if density is None:
            density = float(self._merge.chosen.get("keep", self._merge.options["keep"].default))
        if density >= 1:
            return np.float32(0)
        size, flat = part.stop - part.start, self._vectors[number].flat
        kept = max(1, int(density * size))

        def read(piece: slice) -> Vectors:
            return [flat[part.start + piece.start : part.start + piece.stop]]

        return kernels.nth_magnitudes(read, size, [size - kept + 1])[0, 0]

    def _weighted_vector(self, number: int) -> TaskVector:
        """A task's sparse, weighted vector, computed on access."""
        vector = self._vectors[number]

        def piece(name: str, start: int, stop: int) -> Vector:
            offset = vector.layout.parts[name].start
            sparse = self._sparse(number, vector.flat[offset + start : offset + stop], TensorPiece(name, start, stop))
            return sparse * self._weights[number]

        flat = cast(Any, LazyVector(vector.layout, piece))
        return TaskVector(flat, vector.layout, {}, vector.frozen, model=vector.model)
