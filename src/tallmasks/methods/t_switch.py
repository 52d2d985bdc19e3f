"""T-Switch: of each task vector the signs of its larger weights."""

from tallmasks.methods import Share, Vector, method
from tallmasks.methods.parts.arrays_and_tensors import copied, exact, smallest
from tallmasks.store.tensor_files import Layout


@method(
    name="t_switch",
    row=150,
    title="T-Switch",
    section="compression",
    paper="Qi et al. 2025, T-Switch",
    protocol="per_task",
    storage="switches",
    over="model",
    group="later",
)
def t_switch(task_vector: Vector, layout: Layout, *, drop: Share = 0.6) -> Vector:
    """Of every tensor, without the smallest `drop` of its positive and of its negative weights: the signs, times what
    keeps the L2 norm.

    As in the official code (lfy-123/Binary-Task-Switch) each tensor has its own scale, int((1 - drop) n) of n weights
    stay, with those that equal the smallest of them, and all of them where that is none.
    """
    out = copied(task_vector)
    whole = layout.split(out)
    for name, part in layout.split(task_vector).items():
        signs = 1.0 * (part >= _least(part, drop)) - 1.0 * (-part >= _least(-part, drop))
        squares, kept = exact(part * abs(signs)) ** 2, float(abs(signs).sum())
        whole[name][...] = signs * (float(squares.sum()) / kept) ** 0.5 if kept else 0.0
    return out


def _least(part: Vector, drop: float) -> float:
    """The smallest of the positive values of `part` that stays."""
    found = part[part > 0]
    kept = int(len(found) * (1 - drop))
    if not len(found):
        return float("inf")
    return smallest(found, len(found) - kept if kept else 0)
