"""Iso-CTS: directions that the tasks share, directions of each task's own, and one singular value for all of them."""

import numpy as np

from tallmasks.methods import Share, Vector, merge, method
from tallmasks.methods.parts.singular_vectors import orthogonal, top_triplets


@merge("iso_cts", paper="Marczak et al. 2025, Iso-CTS", over="tensors", named=True)
def iso_cts_merge(tensors: Vector, name: str, *, common: Share = 0.8) -> Vector:
    """float32 [T, m, n] -> [m, n]: the top directions of the sum, a share `common` of them, and for each task the top
    ones of what it has outside of these; U and V made orthogonal, every singular value at their mean.

    As the official code (danielm1405/iso-merging): what is left to the tasks is rounded to a multiple of T, and tensors
    that are not matrices, and `text_projection`, are averaged.  Two things it leaves undefined: a task that left a
    matrix alone adds no directions here (there arbitrary ones), and the tasks together get no more than there are.
    """
    if tensors.ndim != 3 or "text_projection" in name:
        return tensors.mean(axis=0)
    total = tensors.sum(axis=0)
    if not tensors.any():
        return total
    tasks, rank = len(tensors), min(total.shape)
    own = min(round((rank - int(rank * common)) / tasks), rank // tasks)
    shared = top_triplets(total, rank - own * tasks)
    base = shared[0]
    rest = [top_triplets(matrix - base @ (base.T @ matrix), own) for matrix in tensors if matrix.any()]
    left, singular, right = zip(*rest, shared, strict=True)
    mean = np.concatenate(singular).mean()
    return orthogonal(np.hstack(left)) * mean @ orthogonal(np.vstack(right))


@method(
    name="iso_cts",
    row=67,
    title="Iso-CTS",
    section="merging",
    paper="Marczak et al. 2025",
    protocol="scaled",
    storage="single",
    merge="iso_cts",
    unvalidated=1.0,
    coefficients=tuple(round(0.2 * step, 1) for step in range(16)),  # as for Iso-C
    group="later",
)
def iso_cts(multi_task_vector: Vector) -> Vector:
    """The merged matrices themselves; alpha is tuned."""
    return multi_task_vector
