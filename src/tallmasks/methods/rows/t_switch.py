"""T-Switch: of each task vector the signs of its larger weights."""

from typing import Any

from tallmasks.bundles.codings import Ternary
from tallmasks.methods import PerTask, Share, Vector, bits, by_tensor, method
from tallmasks.methods.rows.parts.arrays_and_tensors import exact, smallest


@method(
    name="t_switch",
    row=150,
    title="T-Switch",
    paper="Qi et al. 2025, T-Switch",
    protocol=PerTask(),
    storage=bits.switches,
    group="later",
)
@by_tensor(Ternary)
def t_switch(tensor: Vector, coding: Ternary, *, drop: Share = 0.6) -> tuple[Any, float]:
    """Of every tensor, without the smallest `drop` of its positive and of its negative weights: the signs, times what
    keeps the L2 norm.

    As in the official code (lfy-123/Binary-Task-Switch) each tensor has its own scale.  int((1 - drop) n) of n weights
    stay, with those that equal the smallest of them; if that is none, all stay.
    """
    signs = 1.0 * (tensor >= _least(tensor, drop)) - 1.0 * (-tensor >= _least(-tensor, drop))
    squares, kept = exact(tensor * abs(signs)) ** 2, float(abs(signs).sum())
    return signs, (float(squares.sum()) / kept) ** 0.5 if kept else 0.0


def _least(part: Vector, drop: float) -> float:
    """The smallest of the positive values of `part` that stays."""
    positive = part[part > 0]
    kept = int(len(positive) * (1 - drop))
    if not len(positive):
        return float("inf")
    return smallest(positive, len(positive) - kept if kept else 0)
