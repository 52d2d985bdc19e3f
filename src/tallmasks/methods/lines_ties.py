"""LiNeS on TIES: block by block a larger scale."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from tallmasks.methods import Between, Place, Share, Vector, merge, method
from tallmasks.methods.parts.block_numbers import depths
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

Slope = Annotated[float, Between(0, 10)]
Known = tuple[dict[str, np.float32], list[np.float32], np.float32]


def elect_and_scale(task_vectors: Sequence[TaskVector], *, beta: Slope = 0.5, keep: Share = 0.2) -> Known:
    """The scale of every tensor, and TIES' thresholds and majority sign."""
    flats, thresholds = [vector.flat for vector in task_vectors], [vector.threshold(keep) for vector in task_vectors]
    majority = kernels.majority_sign(flats, thresholds)

    def lengths(part: slice) -> list[float]:
        rows = [flat[part] for flat in flats]
        merged = np.empty_like(rows[0])
        kernels.merge_ties(rows, thresholds, majority, merged, mean=True)
        return [float(abs(values).sum(dtype=np.float64)) for values in (np.sum(rows, axis=0), merged)]

    added, merged = np.sum(kernels.in_pieces(flats[0].size, lengths), axis=0)
    alpha = added / merged / len(flats) if merged else 0.0
    scale = {name: np.float32(alpha + beta * depth) for name, depth in depths(task_vectors[0].layout.names).items()}
    return scale, thresholds, majority


@merge("lines_ties", paper="Wang et al. 2025, LiNeS with TIES", over="places", look=elect_and_scale)
def lines_ties_merge(rows: Sequence[Vector], out: Vector, place: Place, known: Known) -> None:
    """The disjoint mean times alpha + beta * l / (L - 1) in block l of L, times alpha outside blocks, with
    alpha = |sum of tau_t| / (T |tau_MTL|) in L1 norms (wang-kee/LiNeS, src/eval)."""
    scale, thresholds, majority = known
    kernels.merge_ties(rows, thresholds, majority, out, mean=True)
    out *= scale[place.name]


@method(
    name="lines_ties",
    row=42,
    title="TIES + LiNeS",
    section="merging",
    paper="Wang et al. 2025",
    protocol="scaled",
    storage="single",
    merge="lines_ties",
    unvalidated=1.0,
    tuned="beta",
    coefficients=tuple(round(0.1 * step, 1) for step in range(1, 16)),
    group="later",
)
def lines_ties(multi_task_vector: Vector) -> Vector:
    """The scaled blocks themselves; beta is tuned, as in the official code, and the rest of the formula stays."""
    return multi_task_vector
