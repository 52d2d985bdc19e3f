"""Weights and densities of tasks: how much each task vector counts in a merge, and how much of it is left.

Each task vector is made sparse at the task's density, as the merge does it to one task alone.  Then it is multiplied by
the task's weight.  Then the sum is taken, or TIES' disjoint sum.  With `normalize` it is divided by the weights of what
was added.  This is mergekit's order (merge_methods/generalized_task_arithmetic.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from tallmasks.errors import TallmasksError
from tallmasks.methods import options, registry
from tallmasks.methods.merges import Merge, TensorPiece, Vector
from tallmasks.methods.rows.parts.elected_signs import agreeing_or_plus
from tallmasks.parallel import once
from tallmasks.vectors import kernels
from tallmasks.vectors.differences import Difference
from tallmasks.vectors.task_vectors import TaskVector

Vectors = Sequence[Vector]
Apply = Callable[[Vectors, TensorPiece], Vector]

DENSITY = {"ties_sum": "keep", "ties_mean": "keep", "dare": "drop", "dare_ties": "drop", "della": "drop",
           "breadcrumbs": "middle"}  # fmt: skip
"""The option of a merge that a density sets."""
_SUMMED = ("sum", "dare", "breadcrumbs")
_ELECTED = ("ties_sum", "ties_mean", "dare_ties", "della")
TRIMS = ("model", "tensor")


@dataclass(frozen=True)
class Weighting:
    """How the tasks of a merge count; a task that is not named has the weight 1 and the density of the merge.

    Attributes:
        weights: a finite number by task.
        densities: a number by task, above 0 and up to 1.
        trim: what TIES' kept fraction is of: the whole "model", or each "tensor" by itself, as in mergekit.
        normalize: whether to divide by the weights; by default where the merge is a mean.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    densities: Mapping[str, float] = field(default_factory=dict)
    trim: str = "model"
    normalize: bool | None = None

    def __bool__(self) -> bool:
        """Whether anything differs from the merge as it is."""
        return bool(self.weights or self.densities or self.trim != "model" or self.normalize is not None)

    def check(self, merge: str, whose: str) -> None:
        """Raises TallmasksError where a merge has no such weights, densities or trimming."""
        name, _ = options.parse_spec(merge)
        there = ", ".join((*_SUMMED, *_ELECTED))
        if name not in (*_SUMMED, *_ELECTED):
            raise TallmasksError(f"{whose}: it takes no weights by task; expected a method on one of: {there}")
        if self.densities and name not in DENSITY:
            raise TallmasksError(f"{whose}: density: it keeps every weight; leave it out, or take ties")
        if self.trim == "tensor" and name not in ("ties_sum", "ties_mean"):
            raise TallmasksError(f"{whose}: trim: it is of TIES alone; leave it out")


class WeightedMerge:
    """A merge with the weights of its tasks: called as `Merge.bind` is, with slices of the task vectors as they are.

    ``merge``: one that `Weighting.check` accepts; ``task_vectors``: in the order of ``tasks``.
    """

    def __init__(
        self, merge: Merge, task_vectors: Sequence[TaskVector], tasks: Sequence[str], of_tasks: Weighting
    ) -> None:
        name, _ = options.parse_spec(merge.name)
        self._name, self._merge, self._vectors, self._trim = name, merge, task_vectors, of_tasks.trim
        self._weights = np.array([of_tasks.weights.get(task, 1.0) for task in tasks], np.float32)
        self._densities = [of_tasks.densities.get(task) for task in tasks]
        self._normalize = (
            name in ("ties_mean", "dare_ties", "della") if of_tasks.normalize is None else of_tasks.normalize
        )
        self._alone, self._limit = once(self._made_sparse), once(self._limit_in)
        if name == "della":  # it merges whole tensors, and prepares nothing
            self._combined: Apply = lambda vectors, piece: agreeing_or_plus(vectors, mean=False)
        else:
            combined = registry.get_merge("ties_sum:keep=1.0" if name in _ELECTED else "sum")
            self._combined = combined.bind([self._weighted_vector(number) for number in range(len(task_vectors))])

    def weighed(self, vectors: Vectors) -> list[Vector]:
        """Vectors times their weights, nothing left out: what masks are computed from."""
        return [vector * weight for vector, weight in zip(vectors, self._weights, strict=True)]

    def __call__(self, vectors: Vectors, piece: TensorPiece) -> Vector:
        weighted = self.weighed([self._sparse(number, vector, piece) for number, vector in enumerate(vectors)])
        merged = self._combined(weighted, piece)
        if not self._normalize:
            return merged
        if self._name not in _ELECTED:
            whole = self._weights.sum()
            return merged if abs(whole) < 1e-8 else merged / whole
        divisor = np.zeros_like(merged)
        for weight, vector in zip(self._weights, weighted, strict=True):
            divisor += weight * (np.sign(vector) == np.sign(merged))
        divisor[divisor == 0] = 1
        return merged / divisor

    def _sparse(self, number: int, vector: Vector, piece: TensorPiece) -> Vector:
        """What a task's density leaves of its vector."""
        if self._trim == "tensor":
            return np.where(abs(vector) >= self._limit(number, piece.name), vector, np.float32(0))
        return self._alone(number)([vector], piece)

    def _made_sparse(self, number: int) -> Apply:
        """The merge over one task alone, which leaves what it keeps of it."""
        chosen, vector, density = dict(self._merge.chosen), self._vectors[number], self._densities[number]
        if density is not None:
            option = self._merge.options[DENSITY[self._name]]
            chosen[option.name] = option.checked(
                1 - density if option.name == "drop" else density, f"density {density}"
            )
            if len(set(self._densities)) > 1:  # its threshold is its own to compute
                vector = TaskVector(vector.flat, vector.layout, {}, vector.frozen)
        return replace(self._merge, chosen=chosen).bind([vector])

    def _limit_in(self, number: int, tensor: str) -> np.float32:
        """The magnitude from which on a task's tensor keeps its weights: max(1, int(density * n)) of them, and ties."""
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
        """A task vector made sparse and weighted where it is asked for."""
        vector = self._vectors[number]

        def piece(name: str, start: int, stop: int) -> Vector:
            offset = vector.layout.parts[name].start
            sparse = self._sparse(number, vector.flat[offset + start : offset + stop], TensorPiece(name, start, stop))
            return sparse * self._weights[number]

        return TaskVector(cast(Any, Difference(vector.layout, piece)), vector.layout, {}, vector.frozen)
