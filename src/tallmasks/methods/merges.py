"""What a merge is: a function of one slice, or of one tensor, of all task vectors; and what it can learn from."""

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
"""Statistics of data, by the name of the tensor that they belong to; or what a merge has learned."""
LEARNED = "learn"
"""The stage in which a merge learns."""
Loss = Callable[[Any], Any]
"""From log-probabilities [N, C], with gradients, to a scalar."""


@dataclass(frozen=True)
class TensorPiece:
    """Values start..stop of a flattened tensor."""

    name: str
    start: int
    stop: int


def pieces_of(sizes: Mapping[str, int], step: int) -> Iterator[TensorPiece]:
    """Pieces of `step` values of tensors with these sizes; the last piece of a tensor may be shorter."""
    for name, size in sizes.items():
        for start in range(0, size, step):
            yield TensorPiece(name, start, min(start + step, size))


def pieces_of_layout(layout: Layout, whole_tensors: bool = False) -> list[TensorPiece]:
    """The pieces of all tensors: of `kernels.PIECE` values, or tensor by tensor."""
    sizes = {name: math.prod(shape) for name, shape in layout.by_name.items()}
    return list(pieces_of(sizes, max([1, *sizes.values()]) if whole_tensors else kernels.PIECE))


def each_piece(
    task_vectors: Sequence[TaskVector],
    work: Callable[[list[Vector], TensorPiece, slice], Result],
    whole_tensors: bool = False,
) -> list[Result]:
    """The results of ``work`` on T slices, float32 [n] each, of every piece, in order; it also gets the flat slice.

    It runs on several threads, but on whole tensors one at a time: their products have threads of their own.
    """
    layout = task_vectors[0].layout

    def at(piece: TensorPiece) -> Result:
        offset = layout.parts[piece.name].start
        part = slice(offset + piece.start, offset + piece.stop)
        return work([vector.flat[part] for vector in task_vectors], piece, part)

    return parallel(at, pieces_of_layout(layout, whole_tensors), 1 if whole_tensors else None)


class Network(Protocol):
    """The pretrained network with unlabelled validation examples of T tasks.

    Vectors are torch tensors float32 [P'] on the network's device.  Their own functions are enough to compute with
    them, so that a file of methods imports no torch.

    Attributes:
        task_vectors: of the T tasks.
        layout: the names and shapes of the trainable tensors.
        generator: torch's, of the device, for random numbers.
    """

    task_vectors: Sequence[TaskVector]
    layout: Layout
    generator: Any

    def to_device(self, flat: NDArray[np.float32]) -> Any:
        """A copy of a vector on the device."""

    def gradient(self, update: Any, task: int, size: int, loss: Loss) -> Any:
        """The gradient, [P'], with respect to the update, of a loss of theta_0 + update.

        The loss gets log-probabilities of the choices, float32 [N, C], for ``size`` examples.  Every call draws them
        anew; all of them where the task has fewer.
        """

    def report(self, step: int, steps: int) -> None:
        """Tell people how far it is."""


@dataclass(frozen=True)
class Merge:
    """A way to merge task vectors.

    Attributes:
        name: With what is set of its options behind it.
        apply: ``(vectors, piece, facts, **options) -> merged``, float32, for one piece of the task vectors.
        over: What ``vectors`` are.  "slices": T slices, float32 [n] each, in a list or one array [T, n]; "tensors": one
            whole tensor of all tasks, float32 [T, ...].
        prepare: Computes facts of whole task vectors, such as thresholds: ``(task_vectors, **options) -> facts``.
        statistics: The stage whose artifacts ``prepare`` gets as 2nd argument, a mapping of tensors each: one a task,
            or one alone if the stage is joint.
        learn: ``(network, **options) -> Statistics``, from all tasks at once (see `Network`): the second argument of
            ``prepare``; without it, the facts.
        masked_as: The merge that masks are over, where it is another one.
        chosen: The options that are not at their defaults.
    """

    name: str
    apply: Callable[..., Any]
    over: Literal["slices", "tensors"] = "slices"
    prepare: Callable[..., Any] | None = None
    statistics: str | None = None
    learn: Callable[..., Statistics] | None = None
    masked_as: str | None = None
    chosen: Mapping[str, Value] = field(default_factory=dict)

    def bind(
        self, task_vectors: Sequence[TaskVector], statistics: Sequence[Statistics] = ()
    ) -> Callable[[Sequence[Vector], TensorPiece], Vector]:
        """``(vectors, piece) -> merged``, float32 [n] from T of [n].  Raises TallmasksError without its statistics."""
        if self.statistics and not statistics:
            raise TallmasksError(
                f"merge {self.name} needs what the workflow's stage {self.statistics} computes from the tasks' data"
            )
        of_data = [statistics[0] if self.learn else statistics] if self.statistics else []
        facts: Any = of_data[0] if self.learn else None
        if self.prepare is not None:
            facts = self.prepare(task_vectors, *of_data, **options_for(self.prepare, self.chosen))
        options = options_for(self.apply, self.chosen)
        if self.over == "slices":
            return lambda vectors, piece: self.apply(vectors, piece, facts, **options)
        shapes = task_vectors[0].layout.by_name

        def of_tensor(vectors: Sequence[Vector], piece: TensorPiece) -> Vector:
            tensors = np.stack(vectors).reshape(-1, *shapes[piece.name])
            return np.asarray(self.apply(tensors, piece, facts, **options), np.float32).reshape(-1)

        return of_tensor

    def __call__(self, task_vectors: Sequence[TaskVector], out: Vector, statistics: Sequence[Statistics] = ()) -> None:
        """Fill ``out``, float32 [P'].  Raises TallmasksError for NaN or infinity, or without needed statistics."""
        apply = self.bind(task_vectors, statistics)

        def fill(vectors: list[Vector], piece: TensorPiece, part: slice) -> None:
            out[part] = apply(vectors, piece)

        each_piece(task_vectors, fill, self.over != "slices")
        if not all(kernels.in_pieces(out.size, lambda part: kernels.finite(out[part]))):
            raise TallmasksError(f"merge {self.name}: the merged vector holds NaN or infinity, too large a sum perhaps")

    @property
    def learning(self) -> str:
        """What it learns, by its name and those options alone that it learns with."""
        assert self.learn is not None
        return written(self.name.partition(":")[0], options_for(self.learn, self.chosen))

    def learned(self, network: Network) -> Statistics:
        assert self.learn is not None
        return self.learn(network, **options_for(self.learn, self.chosen))

    @property
    def code(self) -> str:
        """What stands for its code in the recipes of what it merges."""
        return code_digest(self.apply, self.prepare, self.over, self.statistics, *([self.learn] if self.learn else []))

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        return options_of(self.apply, self.prepare, self.learn)

    def __post_init__(self) -> None:
        options_of(self.apply, self.prepare, self.learn)  # it refuses a word without its vocabulary
        if self.learn:
            if self.statistics not in (None, LEARNED):
                raise ValueError(f"merge {self.name}: found learn= and statistics={self.statistics!r}; expected one")
            object.__setattr__(self, "statistics", LEARNED)
        elif self.statistics and self.prepare is None:
            raise ValueError(f"merge {self.name}: statistics are for its prepare=, and it has none")
