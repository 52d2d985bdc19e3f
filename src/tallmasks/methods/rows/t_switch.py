"""T-Switch: the signs of the larger weights of each task vector."""

from typing import Any

from tallmasks.methods import PerTask, Share, Vector, by_tensor, method, storage_formulas
from tallmasks.methods.rows.parts.arrays_and_tensors import exact, positive, sign, smallest


@method(
    name="t_switch",
    order=150,
    title="T-Switch",
    paper="Qi et al. 2025, T-Switch",
    usage=PerTask(),
    storage=storage_formulas.switches,
    group="later",
)
@by_tensor
def t_switch(tensor: Vector, *, drop: Share = 0.6) -> Any:
    """For every tensor, drops the smallest fraction `drop` of its positive and of its negative weights, and keeps the
    signs of the others times the scale that preserves their L2 norm.

    As in the official code (lfy-123/Binary-Task-Switch), each tensor has its own scale. Of n weights, int((1 - drop) n)
    are kept, plus those equal to the smallest of them. If that number is 0, all are kept.
    """
    kept = (tensor >= _least(tensor, drop)) | (tensor <= -_least(-tensor, drop))
    held, count = tensor * kept, float(kept.sum())
    scale = (_squared_length(held) / count) ** 0.5 if count else 0.0
    return sign(held) * scale


def _least(part: Vector, drop: float) -> float:
    """The smallest positive value of `part` that is kept."""
    values = positive(part)
    kept = int(len(values) * (1 - drop))
    if not len(values):
        return float("inf")
    return smallest(values, len(values) - kept if kept else 0)


def _squared_length(values: Vector) -> float:
    squares = exact(values)
    squares *= squares  # in place: a float64 copy of a tensor is large
    return float(squares.sum())
