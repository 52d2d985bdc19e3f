"""Weights and densities of tasks: how much each task vector counts in a merge, and how much of it is left.

Each task vector is made sparse at the task's density, as the merge does it to one task alone.  Then it is multiplied by
the task's weight.  Then the sum is taken, or TIES' disjoint sum.  With `normalize` it is divided by the weights of what
was added.  This is mergekit's order (merge_methods/generalized_task_arithmetic.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from tallmasks.methods import options, registry
from tallmasks.methods.merges import Merge, Place, Vector
from tallmasks.methods.rows.parts.block_numbers import depths
from tallmasks.methods.rows.parts.elected_signs import agreeing_or_plus
from tallmasks.store.errors import TallmasksError
from tallmasks.store.parallel import once
from tallmasks.vectors import kernels
from tallmasks.vectors.differences import Difference, Piece
from tallmasks.vectors.task_vectors import TaskVector

Setting = float | Sequence[float] | Sequence[Mapping[str, Any]]
"""A number; a gradient from the first block to the last; or a list of {filter, value}, where the first filter that is a
part of the tensor's name counts."""
Rows = Sequence[Vector]

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
        weights, densities: by task.
        trim: what TIES' kept fraction is of: the whole "model", or each "tensor" by itself, as in mergekit.
        normalize: whether to divide by the weights; by default where the merge is a mean.
    """

    weights: Mapping[str, Setting] = field(default_factory=dict)
    densities: Mapping[str, Setting] = field(default_factory=dict)
    trim: str = "model"
    normalize: bool | None = None

    def __bool__(self) -> bool:
        """Whether anything differs from the merge as it is."""
        return bool(self.weights or self.densities or self.trim != "model" or self.normalize is not None)

    def check(self, merge: str, whose: str) -> None:
        """Raises TallmasksError where a merge has no such weights, or a value is not allowed."""
        name, _ = options.read(merge)
        there = ", ".join((*_SUMMED, *_ELECTED))
        if name not in (*_SUMMED, *_ELECTED):
            raise TallmasksError(f"{whose}: it takes no weights by task; expected a method on one of: {there}")
        if self.densities and name not in DENSITY:
            raise TallmasksError(f"{whose}: density: it keeps every weight; leave it out, or take ties")
        if self.trim == "tensor" and name not in ("ties_sum", "ties_mean"):
            raise TallmasksError(f"{whose}: trim: it is of TIES alone; leave it out")
        for what, settings, low, high in (("weight", self.weights, -np.inf, np.inf), ("density", self.densities, 0, 1)):
            for task, setting in settings.items():
                if not all(math.isfinite(value) and low <= value <= high for value in _numbers(setting)):
                    expected = "a finite number" if what == "weight" else "a number from 0 to 1"
                    raise TallmasksError(f"{what} of {task}: found {setting!r:.100}; expected {expected}")
        if self.trim == "model" and name in ("ties_sum", "ties_mean"):
            for task, setting in self.densities.items():
                if len(set(_numbers(setting))) > 1:
                    raise TallmasksError(f"density of {task} differs by tensor, which needs --trim tensor")


class WeightedMerge:
    """A merge with the weights of its tasks: called as `Merge.prepared` is, with rows of task vectors as they are.

    Args:
        merge: one that `Weighting.check` accepts.
        task_vectors: in the order of ``tasks``.
        tasks: their names.
        of_tasks: their weights.
    """

    def __init__(
        self, merge: Merge, task_vectors: Sequence[TaskVector], tasks: Sequence[str], of_tasks: Weighting
    ) -> None:
        name, _ = options.read(merge.name)
        self._name, self._merge, self._vectors, self._of_tasks = name, merge, task_vectors, of_tasks
        layout = task_vectors[0].layout
        self._offsets = dict(zip(layout.names, layout.offsets, strict=True))
        self._sizes = dict(zip(layout.names, map(math.prod, layout.shapes), strict=True))
        depth = depths(layout.names)

        def by_tensor(settings: Mapping[str, Setting], default: float | None) -> dict[str, list[float | None]]:
            return {
                tensor: [value_at(settings.get(task), tensor, depth[tensor], default) for task in tasks]
                for tensor in layout.names
            }

        self._weights = cast(dict[str, list[float]], by_tensor(of_tasks.weights, 1.0))
        self._densities = by_tensor(of_tasks.densities, None)
        self._normalize = (
            name in ("ties_mean", "dare_ties", "della") if of_tasks.normalize is None else of_tasks.normalize
        )
        self._elected = name in _ELECTED
        self._alone, self._limit = once(self._made_sparse_by), once(self._limit_in)
        combined = registry.get_merge("ties_sum:keep=1.0" if self._elected else "sum")
        if name == "della":  # its rows are whole tensors, and it does not look at the model
            self._combined: Callable[[Rows, Place], Vector] = lambda rows, place: agreeing_or_plus(rows, mean=False)
        else:
            self._combined = combined.prepared([self._weighted_vector(number) for number in range(len(task_vectors))])

    def weighed(self, rows: Rows, place: Place) -> list[Vector]:
        """Rows times their weights, nothing left out: what masks are computed from."""
        weights = self._weights[place.name]
        return [row * np.float32(weight) for row, weight in zip(rows, weights, strict=True)]

    def __call__(self, rows: Rows, place: Place) -> Vector:
        sparse = [self._sparse(number, row, place) for number, row in enumerate(rows)]
        weighted = self.weighed(sparse, place)
        merged = self._combined(weighted, place)
        if not self._normalize:
            return merged
        weights = np.asarray(self._weights[place.name], np.float32)
        if not self._elected:
            whole = weights.sum()
            return merged if abs(whole) < 1e-8 else merged / whole
        divisor = np.zeros_like(merged)
        for weight, row in zip(weights, weighted, strict=True):
            divisor += weight * (np.sign(row) == np.sign(merged))
        divisor[divisor == 0] = 1
        return merged / divisor

    def _sparse(self, number: int, row: Vector, place: Place) -> Vector:
        """What a task's density leaves of its row."""
        density = self._densities[place.name][number]
        if self._of_tasks.trim == "tensor":
            return np.where(abs(row) >= self._limit(number, place.name), row, np.float32(0))
        return self._alone(number, density)([row], place)

    def _made_sparse_by(self, number: int, density: float | None) -> Callable[[Rows, Place], Vector]:
        """The merge over one task alone, which leaves what it keeps of it."""
        chosen, vector = dict(self._merge.chosen), self._vectors[number]
        if density is not None:
            option = self._merge.options[DENSITY[self._name]]
            chosen[option.name] = option.checked(
                1 - density if option.name == "drop" else density, f"density {density}"
            )
            if any(other != density for other in self._densities[vector.layout.names[0]]):
                vector = TaskVector(
                    vector.flat, vector.layout, {}, vector.frozen
                )  # whose threshold is its own to compute
        return replace(self._merge, chosen=chosen).prepared([vector])

    def _limit_in(self, number: int, tensor: str) -> np.float32:
        """The magnitude from which on a task's tensor keeps its weights: max(1, int(density * n)) of them, and ties."""
        density, size = self._densities[tensor][number], self._sizes[tensor]
        if density is None:
            density = float(self._merge.chosen.get("keep", self._merge.options["keep"].default))
        if density >= 1 or not density:
            return np.float32(0 if density else np.inf)
        start, flat = self._offsets[tensor], self._vectors[number].flat
        kept = max(1, int(density * size))

        def rows(part: slice) -> Rows:
            return [flat[start + part.start : start + part.stop]]

        return kernels.nth_magnitudes(rows, size, [size - kept + 1])[0, 0]

    def _weighted_vector(self, number: int) -> TaskVector:
        """A task vector made sparse and weighted where it is asked for."""
        vector = self._vectors[number]

        def piece(name: str, start: int, stop: int) -> Vector:
            offset = self._offsets[name]
            sparse = self._sparse(number, vector.flat[offset + start : offset + stop], Place(name, start, stop))
            return sparse * np.float32(self._weights[name][number])

        return TaskVector(cast(Any, Difference(vector.layout, piece)), vector.layout, {}, vector.frozen)


def check_by_tensor(merge: Merge, settings: Mapping[str, Setting], whose: str) -> None:
    """Raises TallmasksError where an option cannot differ by tensor, or a value is not allowed."""
    for name, setting in settings.items():
        option = merge.options.get(name)
        if option is None or merge.over == "slices" or merge.look or not isinstance(option.default, float):
            raise TallmasksError(f"{whose}: option {name}: found {setting!r:.100}; expected one value for all tensors")
        parts = cast(Sequence[Any], setting)
        if not parts or (any(isinstance(part, Mapping) for part in parts) and not all(map(_is_filtered, parts))):
            expected = "numbers, or a list of {filter, value}"
            raise TallmasksError(f"{whose}: option {name}: found {setting!r:.100}; expected {expected}")
        for number in _numbers(setting):
            option.checked(number, whose)


def _is_filtered(part: Any) -> bool:
    """Whether it is {filter, value}."""
    return (
        isinstance(part, Mapping)
        and {"value"} <= part.keys() <= {"filter", "value"}
        and isinstance(part["value"], int | float | list)
        and isinstance(part.get("filter"), str | None)
    )


def varied(
    merge: Merge, settings: Mapping[str, Setting], task_vectors: Sequence[TaskVector], pretrained: Piece
) -> Callable[[Rows, Place], Vector]:
    """`Merge.prepared`, with options that differ by tensor."""
    if not settings:
        return merge.prepared(task_vectors, pretrained=pretrained)
    depth = depths(task_vectors[0].layout.names)

    def apply(rows: Rows, place: Place) -> Vector:
        own = {name: value_at(setting, place.name, depth[place.name], None) for name, setting in settings.items()}
        chosen = {**merge.chosen, **{name: value for name, value in own.items() if value is not None}}
        return replace(merge, chosen=chosen).prepared(task_vectors, pretrained=pretrained)(rows, place)

    return apply


def value_at(setting: Setting | None, tensor: str, depth: float, default: float | None) -> float | None:
    """A setting for one tensor; ``depth``: l / (L - 1) in block l of L."""
    if setting is None:
        return default
    if isinstance(setting, int | float):
        return float(setting)
    if isinstance(setting[0], Mapping):
        parts = cast(Sequence[Mapping[str, Any]], setting)
        fitting = (part["value"] for part in parts if (part.get("filter") or "*") == "*" or part["filter"] in tensor)
        return value_at(next(fitting, None), tensor, depth, default)
    numbers = cast(Sequence[float], setting)
    first = int(depth * (len(numbers) - 1))
    share = depth * (len(numbers) - 1) - first
    return (1 - share) * numbers[first] + share * numbers[min(first + 1, len(numbers) - 1)]


def _numbers(setting: Setting) -> list[float]:
    """Every number of a setting."""
    if isinstance(setting, int | float):
        return [setting]
    return [n for part in setting for n in (_numbers(part["value"]) if isinstance(part, Mapping) else [part])]
