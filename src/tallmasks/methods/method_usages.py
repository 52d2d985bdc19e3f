"""Usages: how a method's update becomes models, and what is chosen on validation data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tallmasks.methods import storage_formulas
from tallmasks.methods.storage_formulas import Storing

Part = Literal["merging", "compression"]
Grids = Mapping[str, Sequence[float]]
"""The values to try: `grids` of params.yaml."""


@dataclass(frozen=True)
class Usage:
    section: ClassVar[Part] = "compression"
    """The part of the table: one model for all tasks ("merging"), or one per task ("compression")."""
    storage: ClassVar[Storing | None] = None
    """The default storage of its methods."""

    def grid(self, grids: Grids) -> tuple[float, ...]:
        """The values to try on validation data; empty if nothing is chosen."""
        return ()


@dataclass(frozen=True)
class Fixed(Usage):
    """One model, theta_0 + coefficient * update. The coefficient is a number or a function of T."""

    coefficient: float | Callable[[int], float]
    section = "merging"
    storage = storage_formulas.single

    def coefficient_for(self, tasks: int) -> float:
        return self.coefficient(tasks) if callable(self.coefficient) else self.coefficient


@dataclass(frozen=True)
class Scaled(Usage):
    """One model, theta_0 + alpha * update; alpha is chosen on the validation data of the whole benchmark.

    Attributes:
        values: the values to try (default: `grids.scaling_coefficient` in params.yaml).
        tuned: an option of the merge to tune over ``values`` instead of alpha; alpha is then 1.
        unvalidated: alpha without validation data (default: 0.3, as in Ilharco et al. for a sum).
    """

    values: tuple[float, ...] | None = None
    tuned: str | None = None
    unvalidated: float = 0.3
    section = "merging"
    storage = storage_formulas.single

    def __post_init__(self) -> None:
        if self.tuned and self.values is None:
            raise ValueError(f"Scaled(tuned={self.tuned!r}) needs values")

    def grid(self, grids: Grids) -> tuple[float, ...]:
        return tuple(grids["scaling_coefficient"]) if self.values is None else self.values


ALPHAS_TO_3 = tuple(round(0.2 * step, 1) for step in range(16))
"""Values of `Scaled` for merges that are smaller than the sum of the task vectors, such as means. The official code of
TSV-M and Iso-C searches 0.1 to 3.0 in finer steps."""


@dataclass(frozen=True)
class PerTask(Usage):
    """One model per task, theta_0 + update; nothing is chosen."""


@dataclass(frozen=True)
class Masked(Usage):
    """One model per task, theta_0 + update; mask_lambda is chosen on the task's validation data."""

    storage = storage_formulas.masked

    def grid(self, grids: Grids) -> tuple[float, ...]:
        return tuple(grids["mask_lambda"])


@dataclass(frozen=True)
class FineTuned(Usage):
    """The fine-tuned checkpoints themselves; theta_0 + update equals them up to rounding."""

    storage = storage_formulas.finetuned
