"""Iso-C: the sum of the task matrices with all singular values set to their mean."""

from tallmasks.methods import ALPHAS_TO_3, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.singular_vectors import RoundingErrorOf, is_matrix, rounding_errors, top_triplets


@merge("iso_c", over="tensors", prepare=rounding_errors, is_spectral=True)
def iso_c(tensors: Vector, piece: TensorPiece, rounding_error_of: RoundingErrorOf) -> Vector:
    """float32 [T, m, n] -> [m, n]: U (mean of S) V^T of the sum; for all other tensors the mean over the tasks.

    Like the official code (danielm1405/iso-merging), except that singular vectors below the rounding errors, which are
    arbitrary, are left out. The official code also averages matrices named `text_projection`; the models here do not
    train these.
    """
    merged = tensors.sum(axis=0)
    if not is_matrix(merged.shape):
        return merged / len(tensors)
    left, singular, right, _ = top_triplets(
        merged, min(merged.shape), rounding_error_of(piece.name) * len(tensors) ** 0.5
    )
    if not singular.size:  # no task moved it, or the tasks cancel each other
        return merged / len(tensors)
    return (left * singular.mean()) @ right


merged_row("iso_c", order=66, title="Iso-C", paper="Marczak et al. 2025", usage=Scaled(ALPHAS_TO_3, unvalidated=1.0))
