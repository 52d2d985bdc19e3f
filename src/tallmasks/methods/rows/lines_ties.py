"""LiNeS on TIES: a scale that grows with the block number."""

from collections.abc import Sequence

import numpy as np

from tallmasks.methods import ALPHAS_TO_3, Fraction, Scaled, TensorPiece, Vector, each_piece, merge, merged_row
from tallmasks.methods.rows.lines import Slope
from tallmasks.methods.rows.parts.block_numbers import depths
from tallmasks.methods.rows.ties import Elected, ties_mean, trim_and_elect
from tallmasks.vectors.task_vectors import TaskVector

Prepared = tuple[Elected, dict[str, np.float32]]


def elect_and_scale(task_vectors: Sequence[TaskVector], *, beta: Slope = 0.5, keep: Fraction = 0.2) -> Prepared:
    """What TIES prepares, and the scale of every tensor: alpha + beta * l / (L - 1) in block l of L, alpha outside
    blocks, with alpha = |sum of tau_t| / (T |tau_MTL|) in L1 norms."""
    elected = trim_and_elect(task_vectors, keep=keep)

    def lengths(vectors: list[Vector], piece: TensorPiece, part: slice) -> np.ndarray:
        both = np.sum(vectors, axis=0), ties_mean(vectors, piece, elected)
        return np.array([abs(each).sum(dtype=float) for each in both])

    added, merged = np.sum(each_piece(task_vectors, lengths), axis=0)
    alpha = added / merged / len(task_vectors) if merged else 0.0
    of_tensors = depths(task_vectors[0].shapes).items()
    return elected, {name: np.float32(alpha + beta * depth) for name, depth in of_tensors}


@merge("lines_ties", prepare=elect_and_scale)
def lines_ties(vectors: Sequence[Vector], piece: TensorPiece, prepared: Prepared) -> Vector:
    """TIES' disjoint mean times the scale of its tensor (wang-kee/LiNeS, src/eval/eval.py)."""
    elected, scales = prepared
    return ties_mean(vectors, piece, elected) * scales[piece.name]


merged_row(
    "lines_ties",
    order=42,
    title="TIES + LiNeS",
    paper="Wang et al. 2025",
    usage=Scaled(ALPHAS_TO_3, tuned="beta", unvalidated=1.0),
    group="later",
)
