"""The `Merge` class: a function of one slice, or one tensor, of all task vectors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.code_digests import code_digest
from tallmasks.methods.options import Option, Value, options_for, options_of, written
from tallmasks.parallel import parallel
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

Vector = NDArray[np.float32]
Mask = NDArray[np.bool_]
Result = TypeVar("Result")
Statistics = Mapping[str, NDArray[np.float32]]
"""Data statistics, or learned parameters, by tensor name."""
Loss = Callable[[Any], Any]
"""From log-probabilities [N, C], with gradients, to a scalar."""


@dataclass(frozen=True)
class Statistic:
    """What a merge needs of the tasks' data, besides the task vectors.

    Attributes:
        meaning: the data, for messages.
    """

    name: str
    meaning: str


GRAMS = Statistic("grams", "data statistics (grams)")
"""X^T X / n of each linear layer's inputs X, from each task's training examples."""
FISHER = Statistic("fisher", "data statistics (fisher)")
"""The mean squared gradient of every weight, from each task's training examples."""
LEARNED = Statistic("learn", "validation data without labels")
"""The result of ``learn`` of a merge."""


@dataclass(frozen=True)
class TensorPiece:
    """Values start..stop of a flattened tensor."""

    name: str
    start: int
    stop: int


def pieces_of(sizes: Mapping[str, int], step: int) -> Iterator[TensorPiece]:
    """Splits tensors of the given sizes into pieces of `step` values; the last piece of a tensor may be shorter."""
    for name, size in sizes.items():
        for start in range(0, size, step):
            yield TensorPiece(name, start, min(start + step, size))


def pieces_of_layout(layout: Layout, whole_tensors: bool = False, step: int = kernels.SLICE) -> list[TensorPiece]:
    """Splits all tensors into pieces of ``step`` values, or into whole tensors."""
    sizes = {name: math.prod(shape) for name, shape in layout.by_name.items()}
    if whole_tensors:
        return [TensorPiece(name, 0, size) for name, size in sizes.items() if size]
    return list(pieces_of(sizes, step))


def each_piece(
    task_vectors: Sequence[TaskVector],
    work: Callable[[list[Vector], TensorPiece, slice], Result],
    whole_tensors: bool = False,
) -> list[Result]:
    """The results of ``work(slices, piece, flat slice)`` for every piece, in order; slices: T of float32 [n].

    Pieces run on several threads, whole tensors on one, because their matrix products are multi-threaded.
    """
    layout = task_vectors[0].layout

    def at(piece: TensorPiece) -> Result:
        offset = layout.parts[piece.name].start
        part = slice(offset + piece.start, offset + piece.stop)
        return work([vector.flat[part] for vector in task_vectors], piece, part)

    return parallel(at, pieces_of_layout(layout, whole_tensors), 1 if whole_tensors else None)


class Network(Protocol):
    """The pretrained network with unlabelled validation examples of T tasks.

    Vectors are torch tensors, float32 [P'], on the network's device. Use only their methods: files in ``rows`` do not
    import torch.

    Attributes:
        generator: torch generator on the device.
    """

    task_vectors: Sequence[TaskVector]
    layout: Layout
    generator: Any

    def to_device(self, flat: NDArray[np.float32]) -> Any:
        """Copies a vector to the device."""

    def gradient(self, update: Any, task: int, size: int, loss: Loss) -> Any:
        """The gradient, [P'], of loss(theta_0 + update) with respect to the update.

        The loss gets log-probabilities of the choices, float32 [N, C]. Each call draws ``size`` examples, or all if the
        task has fewer.
        """

    def report(self, step: int, steps: int) -> None:
        """Reports progress."""


@dataclass(frozen=True)
class Merge:
    """A way to merge task vectors.

    Attributes:
        name: includes the options that are not at their defaults.
        apply: ``(vectors, piece, prepared, **options) -> merged``, float32, for one piece of the task vectors.
        over: what ``vectors`` contains. "slices": T slices, float32 [n] each, as a list or one array [T, n]. "tensors":
            one whole tensor of all tasks, float32 [T, ...].
        prepare: ``(task_vectors, **options) -> prepared``, from whole task vectors, for example thresholds.
        statistics: the second argument of ``prepare``: a list of mappings of tensors, one per task, or only one if
            they are computed from all tasks together.
        learn: ``(network, **options) -> Statistics``, from all tasks at once (see `Network`). The result is the second
            argument of ``prepare``; without ``prepare`` it is ``prepared`` itself.
        is_spectral: whether matrices are merged by their singular vectors.
        masked_as: the merge to compute masks from, if it is another one.
        sparsify: the option that a task's density sets: "drop" to 1 - density, any other to the density. "keep" means
            that the smallest weights are trimmed.
        combine: what is computed from task vectors that are sparse and multiplied by the tasks' weights: their sum, or
            for each weight the sum or mean of the values with the sign of that sum (where it is 0, with the majority's
            sign, or plus if whole tensors are merged). None: the merge takes no weights.
        chosen: the options that are not at their defaults.
    """

    name: str
    apply: Callable[..., Any]
    over: Literal["slices", "tensors"] = "slices"
    prepare: Callable[..., Any] | None = None
    statistics: Statistic | None = None
    learn: Callable[..., Statistics] | None = None
    is_spectral: bool = False
    masked_as: str | None = None
    sparsify: str | None = None
    combine: Literal["sum", "disjoint_sum", "disjoint_mean"] | None = None
    chosen: Mapping[str, Value] = field(default_factory=dict)

    def bind(
        self, task_vectors: Sequence[TaskVector], statistics: Sequence[Statistics] = ()
    ) -> Callable[[Sequence[Vector], TensorPiece], Vector]:
        """``(vectors, piece) -> merged``, float32 [n] from T of [n]. Raises TallmasksError without its statistics."""
        if self.statistics and not statistics:
            raise TallmasksError(
                f"merge {self.name} needs {self.statistics.meaning}, as in the workflow; use another merge"
            )
        of_data = [statistics[0] if self.learn else statistics] if self.statistics else []
        prepared: Any = of_data[0] if self.learn else None
        if self.prepare is not None:
            prepared = self.prepare(task_vectors, *of_data, **options_for(self.prepare, self.chosen))
        options = options_for(self.apply, self.chosen)
        if self.over == "slices":
            return lambda vectors, piece: self.apply(vectors, piece, prepared, **options)
        shapes = task_vectors[0].layout.by_name

        def of_tensor(vectors: Sequence[Vector], piece: TensorPiece) -> Vector:
            tensors = np.stack(vectors).reshape(-1, *shapes[piece.name])
            return np.asarray(self.apply(tensors, piece, prepared, **options), np.float32).reshape(-1)

        return of_tensor

    def __call__(self, task_vectors: Sequence[TaskVector], out: Vector, statistics: Sequence[Statistics] = ()) -> None:
        """Fills ``out``, float32 [P']. Raises TallmasksError for NaN or infinity, or without needed statistics."""
        apply = self.bind(task_vectors, statistics)

        def fill(vectors: list[Vector], piece: TensorPiece, part: slice) -> None:
            out[part] = apply(vectors, piece)

        each_piece(task_vectors, fill, self.over != "slices")
        if not all(kernels.in_pieces(out.size, lambda part: kernels.finite(out[part]))):
            raise TallmasksError(f"merge {self.name}: the merged vector holds NaN or infinity; its sum may overflow")

    @property
    def learning(self) -> str:
        """The name with only the options of ``learn``."""
        assert self.learn is not None
        return written(self.name.partition(":")[0], options_for(self.learn, self.chosen))

    def learned(self, network: Network) -> Statistics:
        assert self.learn is not None
        return self.learn(network, **options_for(self.learn, self.chosen))

    @property
    def code(self) -> str:
        """The digest of its code, used in the recipes of its results."""
        statistics = self.statistics and self.statistics.name
        return code_digest(self.apply, self.prepare, self.over, statistics, *([self.learn] if self.learn else []))

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        return options_of(self.apply, self.prepare, self.learn)

    @property
    def values(self) -> dict[str, Value]:
        """The values of its options."""
        return {name: self.chosen.get(name, option.default) for name, option in self.options.items()}

    def __post_init__(self) -> None:
        if self.learn:
            object.__setattr__(self, "statistics", LEARNED)
