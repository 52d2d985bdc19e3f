"""Computes methods piece by piece: merged vector, masks and agreement for one piece of one tensor at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout
from tallmasks.methods import registry
from tallmasks.methods.contract import Method
from tallmasks.methods.merges import Merge, TensorPiece, Vector
from tallmasks.methods.weighting import WeightedMerge, Weighting
from tallmasks.parallel import cached
from tallmasks.vectors import kernels
from tallmasks.vectors.lazy_vectors import LazyVector, ReadPiece
from tallmasks.vectors.task_vectors import TaskVector, trim_thresholds

OF_PIECES = {
    "pretrained",
    "layout",
    "task_vector",
    "threshold",
    "multi_task_vector",
    "stored_vector",
    "agreement",
    "mask",
}
"""The inputs that can be computed for one piece. All others need the whole model."""


class Stream:
    """The task vectors to merge, read in pieces.

    Args:
        layout: the tensors that at least one task changed, sorted.
        pretrained: reads a piece of theta_0.
        changes: by task, reads a piece of tau_t.
        frozen: the number of values that no task changed; kept fractions include them.
        roundoff: per task, the largest relative rounding error of a tensor's values, by tensor name (default: 0).
        model: the layout of all weights (default: ``layout``).
    """

    def __init__(
        self,
        layout: Layout,
        pretrained: ReadPiece,
        changes: Mapping[str, ReadPiece],
        frozen: int = 0,
        roundoff: Sequence[Callable[[str], float]] | None = None,
        model: Layout | None = None,
    ) -> None:
        self.layout, self.pretrained, self.changes, self.frozen = layout, pretrained, dict(changes), frozen
        self._roundoff = roundoff or [lambda name: 0.0] * len(changes)
        self._model, self._lengths = model, dict[str, float]()

    @functools.cached_property
    def vectors(self) -> list[TaskVector]:
        """Task vectors that are computed on access. Thresholds are computed for all tasks together, once."""
        flats: list[Vector] = [cast(Any, LazyVector(self.layout, piece)) for piece in self.changes.values()]

        @cached
        def thresholds(fraction: float, of_trainable: bool) -> list[np.float32]:
            return trim_thresholds(flats, fraction, 0 if of_trainable else self.frozen)

        return [
            _Streamed(
                flat, self.layout, {}, self.frozen, self._rounding_error(roundoff), self._model, number, thresholds
            )
            for number, (flat, roundoff) in enumerate(zip(flats, self._roundoff, strict=True))
        ]

    def _rounding_error(self, roundoff: Callable[[str], float]) -> Callable[[str], float]:
        """The spectral norm of the rounding errors in a task's matrix, by tensor name.

        For independent errors it is about the length of the longest row plus that of the longest column. The errors are
        uniformly distributed, so their root mean square is 3^-1/2 times the largest.
        """

        def rounding_error(name: str) -> float:
            if name not in self._lengths:
                shape = self.layout.by_name[name]
                theta = self.pretrained(name, 0, prod(shape)).reshape(shape)
                squares = [np.einsum(f"ij,ij->{axis}", theta, theta) for axis in "ij"] if len(shape) == 2 else []
                self._lengths[name] = sum(float(np.sqrt(one.max())) for one in squares)
            return 3**-0.5 * roundoff(name) * self._lengths[name]

        return rounding_error

    def task_vectors_at(self, piece: TensorPiece) -> Sequence[Vector]:
        """tau_t of every task in a piece, float32 [n] each. Raises TallmasksError for NaN, infinity or overflow."""
        return [self.task_vector_at(task, piece) for task in self.changes]

    def task_vector_at(self, task: str, piece: TensorPiece) -> Vector:
        """tau_t of one task in a piece, float32 [n]. Raises like :meth:`task_vectors_at`."""
        vector = self.changes[task](piece.name, piece.start, piece.stop)
        if not kernels.finite(vector):
            raise TallmasksError(
                f"{task}: tensor {piece.name} holds NaN or infinity; its training diverged, or the file is damaged"
            )
        return vector


@dataclass(frozen=True)
class _Streamed(TaskVector):
    """Task vector ``number`` of a stream. ``thresholds_of_all`` computes the thresholds of all tasks."""

    number: int = 0
    thresholds_of_all: Callable[[float, bool], list[np.float32]] = lambda fraction, of_trainable: []

    def threshold(self, fraction: float, *, of_trainable: bool = False) -> np.float32:
        return self.thresholds_of_all(fraction, of_trainable)[self.number]


class StreamedMerge:
    """A merge on a stream, with task weights if given. What it prepares is computed at construction."""

    def __init__(self, merge: Merge, stream: Stream, of_tasks: Weighting | None = None) -> None:
        self._name = merge.name
        self._weighted = WeightedMerge(merge, stream.vectors, [*stream.changes], of_tasks) if of_tasks else None
        self._apply = self._weighted or merge.bind(stream.vectors)
        self.over_tensors = merge.over != "slices"

    @property
    def threads(self) -> int | None:
        """The number of threads to use: 1 for whole tensors, whose matrix products are multi-threaded."""
        return 1 if self.over_tensors else None

    def weighted(self, vectors: Sequence[Vector]) -> Sequence[Vector]:
        return self._weighted.weighted(vectors) if self._weighted else vectors

    def __call__(self, piece: TensorPiece, vectors: Sequence[Vector]) -> Vector:
        """tau_MTL in a piece, float32 [n]. Raises TallmasksError if it contains NaN or infinity."""
        merged = self._apply(vectors, piece)
        if not kernels.finite(merged):
            raise TallmasksError(f"merge {self._name}: {piece.name} holds NaN or infinity; its sum may overflow")
        return merged


class PieceInputs:
    """The inputs, in one piece, of a method that builds one model. ``mask_lambdas``: each task's mask lambda."""

    def __init__(
        self, stream: Stream, piece: TensorPiece, merging: StreamedMerge, mask_lambdas: Sequence[float]
    ) -> None:
        self._mask_lambdas = mask_lambdas
        vectors = stream.task_vectors_at(piece)
        self.vectors = merging.weighted(vectors)
        self.pretrained = stream.pretrained(piece.name, piece.start, piece.stop)
        self.multi_task_vector = merging(piece, vectors)

    @property
    def count(self) -> int:
        return len(self.vectors)

    @property
    def agreement(self) -> NDArray[np.uint8]:
        return kernels.count_masks(self.vectors, self.multi_task_vector, self._mask_lambdas)


def check_can_stream(method: Method) -> None:
    """Raises TallmasksError if a method cannot be computed piece by piece from checkpoints, naming what is missing."""
    if method.whole_model:
        raise TallmasksError(f"{method.name} needs the whole model in memory; use the workflow or another method")
    missing = [f"{one.name} ({one.meaning})" for one in method.all_inputs.values() if one.name not in OF_PIECES]
    if statistic := registry.statistics_behind(method):
        missing.append(statistic.meaning)
    if missing:
        raise TallmasksError(
            f"{method.name} needs {', '.join(missing)}, which checkpoints do not contain; use the workflow or another"
            " method"
        )
