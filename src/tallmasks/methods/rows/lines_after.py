"""LiNeS after any merge: block by block a larger scale."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.methods import Between, Vector, after_every_merge, merge, method
from tallmasks.methods.rows.parts.block_numbers import depths
from tallmasks.vectors.task_vectors import TaskVector

Slope = Annotated[float, Between(0, 10)]
Measure = Callable[[Sequence[Vector], Vector], NDArray[np.float64]]
ROW: dict[str, Any] = {
    "section": "merging",
    "paper": "Wang et al. 2025",
    "protocol": "scaled",
    "storage": "single",
    "unvalidated": 1.0,
    "tuned": "beta",
    "coefficients": tuple(round(0.1 * step, 1) for step in range(1, 16)),
    "group": "later",
}


def scales(
    task_vectors: Sequence[TaskVector], total: Callable[[Measure], NDArray[np.float64]], *, beta: Slope = 0.5
) -> dict[str, np.float32]:
    """The scale of every tensor: alpha + beta * l / (L - 1) in block l of L, alpha outside blocks, with
    alpha = |sum of tau_t| / (T |tau_MTL|) in L1 norms."""
    added, merged = total(
        lambda *both: np.array([abs(each).sum(dtype=float) for each in (np.sum(both[0], axis=0), both[1])])
    )
    alpha = added / merged / len(task_vectors) if merged else 0.0
    return {name: np.float32(alpha + beta * depth) for name, depth in depths(task_vectors[0].layout.names).items()}


def lines(multi_task_vector: Vector) -> Vector:
    """The scaled blocks themselves; beta is tuned, as in the official code, and the rest of the formula stays."""
    return multi_task_vector


@merge("lines_ties", paper="Wang et al. 2025", look=scales, after="ties_mean")
@after_every_merge("lines", title="{} + LiNeS", update=lines, look=scales, **ROW)
def scaled(merged: Vector, name: str, scale: dict[str, np.float32]) -> Vector:
    """The merged vector times the scale of its tensor (wang-kee/LiNeS, src/eval/eval.py)."""
    return merged * scale[name]


method(name="lines_ties", row=42, title="TIES + LiNeS", merge="lines_ties", **ROW)(lines)
