"""How a method's update becomes models, and what is chosen on validation data: one small class for each protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tallmasks.methods import bits
from tallmasks.methods.bits import Storing

Section = Literal["merging", "compression"]
Grids = Mapping[str, Sequence[float]]
"""What is tried: `grids` of params.yaml."""


@dataclass(frozen=True)
class Protocol:
    """What all protocols have."""

    section: ClassVar[Section] = "compression"
    """The part of the table: one model for all tasks ("merging"), or a model per task."""
    storage: ClassVar[Storing | None] = None
    """The default storage of its methods."""

    def grid(self, grids: Grids) -> tuple[float, ...]:
        """The values that are tried on validation data; none where nothing is chosen."""
        return ()


@dataclass(frozen=True)
class Fixed(Protocol):
    """One model, theta_0 + coefficient * update; the coefficient is a number, or a function of T."""

    coefficient: float | Callable[[int], float]
    section = "merging"
    storage = bits.single

    def coefficient_for(self, tasks: int) -> float:
        return self.coefficient(tasks) if callable(self.coefficient) else self.coefficient


@dataclass(frozen=True)
class Scaled(Protocol):
    """One model, theta_0 + alpha * update; alpha is the best on validation data, over the whole benchmark.

    Attributes:
        values: What is tried instead of `grids.scaling_coefficient` in params.yaml.
        tuned: An option of the merge that is tuned in the place of alpha, which is 1; ``values`` are its values.
        unvalidated: alpha where there is no validation data to choose it; 0.3 is Ilharco et al.'s for a sum.
    """

    values: tuple[float, ...] | None = None
    tuned: str | None = None
    unvalidated: float = 0.3
    section = "merging"
    storage = bits.single

    def __post_init__(self) -> None:
        if self.tuned and self.values is None:
            raise ValueError(f"Scaled(tuned={self.tuned!r}) needs values")

    def grid(self, grids: Grids) -> tuple[float, ...]:
        return tuple(grids["scaling_coefficient"]) if self.values is None else self.values


PAST_ONE = tuple(round(0.2 * step, 1) for step in range(16))
"""Values of `Scaled` for a merge that is smaller than the sum of the task vectors: a mean, a small part of each, or
equal singular values.  TSV-M and Iso-C have the reach of their official 0.1 to 3.0, in coarser steps."""


@dataclass(frozen=True)
class PerTask(Protocol):
    """A model per task, theta_0 + update; nothing to choose."""


@dataclass(frozen=True)
class Masked(Protocol):
    """A model per task, theta_0 + update; mask_lambda is the best on validation data, for that task alone."""

    storage = bits.masked

    def grid(self, grids: Grids) -> tuple[float, ...]:
        return tuple(grids["mask_lambda"])


@dataclass(frozen=True)
class FineTuned(Protocol):
    """The checkpoints themselves; theta_0 + update is the same up to rounding."""

    storage = bits.finetuned
