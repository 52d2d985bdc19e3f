"""Iso-CTS: directions shared by the tasks plus each task's own directions, all with the same singular value."""

import numpy as np

from tallmasks.methods import ALPHAS_TO_3, Scaled, Share, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.singular_vectors import (
    RoundingErrorOf,
    is_matrix,
    orthogonalised,
    rounding_errors,
    top_triplets,
)


@merge("iso_cts", over="tensors", prepare=rounding_errors, is_spectral=True)
def iso_cts(tensors: Vector, piece: TensorPiece, rounding_error_of: RoundingErrorOf, *, common: Share = 0.8) -> Vector:
    """float32 [T, m, n] -> [m, n]: the top directions of the sum (a fraction `common` of all) and each task's top
    directions outside them; U and V made orthogonal, all singular values set to their mean.

    Like the official code (danielm1405/iso-merging), the number of task directions is rounded to a multiple of T, and
    tensors that are not matrices, and `text_projection`, are averaged. Unlike there, directions below the rounding
    errors (of the sum, of a task's remainder, of U and V) and surplus task directions are left out. The error of the
    sum is relative to the norm of the tasks, because tasks can cancel each other. If nothing exceeds the rounding
    errors, returns the mean.
    """
    tasks, shape = len(tensors), tensors.shape[1:]
    if not is_matrix(shape) or "text_projection" in piece.name:
        return tensors.mean(axis=0)
    rank, rounding_error = min(shape), rounding_error_of(piece.name) * tasks**0.5
    own = min(round((rank - int(rank * common)) / tasks), rank // tasks)
    shared = top_triplets(tensors.sum(axis=0), rank - own * tasks, rounding_error, of=float(np.linalg.norm(tensors)))
    base = shared[0]
    rest = [
        top_triplets(matrix - base @ (base.T @ matrix), own, rounding_error, of=float(np.linalg.norm(matrix)))
        for matrix in tensors
    ]
    merged = orthogonalised([*rest, shared])
    if not merged.singular.size:
        return tensors.mean(axis=0)
    return merged.left * merged.singular.mean() @ merged.right


merged_row(
    "iso_cts",
    order=67,
    title="Iso-CTS",
    paper="Marczak et al. 2025",
    usage=Scaled(ALPHAS_TO_3, unvalidated=1.0),
    group="later",
)
