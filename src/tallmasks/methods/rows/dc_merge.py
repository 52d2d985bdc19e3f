"""DC-Merge: the top singular directions of all tasks, aligned in one orthogonal basis."""

import numpy as np

from tallmasks.methods import ALPHAS_TO_3, Fraction, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.singular_vectors import (
    RoundingErrorOf,
    is_matrix,
    orthogonalised,
    rounding_errors,
    top_triplets,
)


@merge("dc_merge", over="tensors", prepare=rounding_errors)
def dc_merge(
    tensors: Vector, piece: TensorPiece, rounding_error_of: RoundingErrorOf, *, keep: Fraction = 0.001
) -> Vector:
    """float32 [T, m, n] -> [m, n]: U B V with U and V of TSV-M. For r < T, and for all other tensors, the mean.

    M_t = U^T D_t V^T, where D_t is truncated to rank floor(r / T), r = min(m, n). Of each M_t, the largest values, a
    fraction `keep` of r^2, are merged like TIES: for each position, the mean of the values that have the sign of their
    sum. B contains only the diagonal blocks of the result, one block per task.

    Like the official code for full fine-tuning (Tobeginwith/DC-Merge, vision_fft_merge/src/utils/DC_utils.py), except
    that directions below the rounding errors are left out as in TSV-M. The official code for LoRAs also smooths the
    singular values, which is not done here.
    """
    shape, tasks = tensors.shape[1:], len(tensors)
    rank = int(min(shape, default=0) * (1 / tasks))
    if not is_matrix(shape) or "text_projection" in piece.name or not rank:
        return tensors.mean(axis=0)
    parts = [top_triplets(matrix, rank, rounding_error_of(piece.name)) for matrix in tensors]
    basis = orthogonalised(parts)
    if not basis.singular.size:
        return tensors.mean(axis=0)
    count = min(max(1, int(keep * min(shape) ** 2)), basis.singular.size**2)
    cores = [(basis.left.T @ left * singular) @ (right @ basis.right.T) for left, singular, right, _ in parts]
    largest = np.stack(
        [np.where(abs(core) >= np.partition(abs(core), -count, axis=None)[-count], core, 0) for core in cores]
    )
    agreeing = np.where(np.sign(largest) == np.sign(largest.sum(axis=0)), largest, 0)
    merged = agreeing.sum(axis=0) / np.count_nonzero(agreeing, axis=0).clip(1)
    task_of = np.repeat(np.arange(tasks), [part.singular.size for part in parts])
    return basis.left @ np.where(task_of[:, None] == task_of, merged, 0).astype(np.float32) @ basis.right


merged_row(
    "dc_merge",
    order=65,
    title="DC-Merge",
    paper="Zhang et al. 2026",
    usage=Scaled(ALPHAS_TO_3, unvalidated=1.0),
    group="later",
)
