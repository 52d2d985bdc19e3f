"""DARE + TIES: drops random weights and rescales the others, then trims, elects and merges."""

from collections.abc import Sequence

from tallmasks.methods import ALPHAS_TO_3, Fraction, Scaled, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.dare import Rate, Seed
from tallmasks.methods.rows.parts.seeded_draws import dropped, dropped_vector, task_keys
from tallmasks.methods.rows.ties import Elected, agreeing, trim_and_elect
from tallmasks.vectors.task_vectors import TaskVector

Prepared = tuple[list[bytes], Elected]


def drop_and_elect(
    task_vectors: Sequence[TaskVector], *, drop: Rate = 0.5, seed: Seed = 0, keep: Fraction = 0.2
) -> Prepared:
    """The keys of the random draws, and TIES' thresholds and majority sign after dropping."""
    keys = task_keys(task_vectors, seed)
    left = [dropped_vector(vector, key, drop) for vector, key in zip(task_vectors, keys, strict=True)]
    return keys, trim_and_elect(left, keep=keep)


@merge("dare_ties", prepare=drop_and_elect, sparsify="drop", combine="disjoint_mean")
def dare_ties(vectors: Sequence[Vector], piece: TensorPiece, prepared: Prepared, *, drop: Rate = 0.5) -> Vector:
    """The disjoint mean of the task vectors after DARE.

    As in the official code (yule-BUAA/MergeLM), `keep` is a fraction of all parameters, including dropped ones. It is
    rounded as for TIES, which can keep one weight less than the official code.
    """
    keys, elected = prepared
    left = [dropped(vector, key, piece.name, piece.start, drop) for vector, key in zip(vectors, keys, strict=True)]
    return agreeing(left, elected, mean=True)


merged_row(
    "dare_ties",
    order=44,
    title="DARE + TIES",
    paper="Yu et al. 2024",
    usage=Scaled(ALPHAS_TO_3, unvalidated=1.0),
    group="later",
)
