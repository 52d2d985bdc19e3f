"""T-Switch: the signs of the larger weights of each task vector."""

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
    """For every tensor, drops the smallest fraction `drop` of its positive and of its negative weights, and keeps the
    signs of the others times the scale that preserves their L2 norm.

    As in the official code (lfy-123/Binary-Task-Switch), each tensor has its own scale. Of n weights, int((1 - drop) n)
    are kept, plus those equal to the smallest of them. If that number is 0, all are kept.
    """
    signs = 1.0 * (tensor >= _least(tensor, drop)) - 1.0 * (-tensor >= _least(-tensor, drop))
    squares, kept = exact(tensor * abs(signs)) ** 2, float(abs(signs).sum())
    return signs, (float(squares.sum()) / kept) ** 0.5 if kept else 0.0


def _least(part: Vector, drop: float) -> float:
    """The smallest positive value of `part` that is kept."""
    positive = part[part > 0]
    kept = int(len(positive) * (1 - drop))
    if not len(positive):
        return float("inf")
    return smallest(positive, len(positive) - kept if kept else 0)
