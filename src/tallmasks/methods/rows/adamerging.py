"""AdaMerging: coefficients that minimise the merged model's entropy on unlabelled data."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tallmasks.methods import Fixed, Fraction, Network, Share, Statistics, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.entropy_minimisation import Count, most_certain
from tallmasks.methods.rows.ties import Elected, agreeing, trim_and_elect
from tallmasks.vectors.task_vectors import TaskVector

By = Literal["tensor", "task"]


def learn(net: Network, *, by: By = "tensor", steps: Count = 500, rate: Share = 1e-3, batch: Count = 16) -> Statistics:
    """A coefficient per task and tensor, or per task with `by`.

    Like the official code (EnnengYang/AdaMerging, main_layer_wise_adamerging.py, main_task_wise_adamerging.py), except
    that its steps use two batches of 16 test examples per task; here each uses one batch of validation examples.
    """
    return most_certain(net, [vector.flat for vector in net.task_vectors], by, steps, rate, batch)


def learn_elected(
    net: Network, *, keep: Fraction = 0.2, by: By = "tensor", steps: Count = 500, rate: Share = 1e-3, batch: Count = 16
) -> Statistics:
    """Like `learn`, for task vectors trimmed and elected by TIES (AdaMerging++, main_layer_wise_adamergingpp.py)."""
    flats = left([one.flat for one in net.task_vectors], trim_and_elect(net.task_vectors, keep=keep))
    return most_certain(net, flats, by, steps, rate, batch)


def left(vectors: Sequence[Vector], elected: Elected) -> list[Vector]:
    """The trimmed task vectors, 0 where their sign is not the elected one, float32 [n] per task."""
    sign = np.sign(agreeing(vectors, elected, mean=False))
    return [
        vector * ((abs(vector) >= least) & (np.sign(vector) == sign))
        for vector, least in zip(vectors, elected[0], strict=True)
    ]


def elect(vectors: Sequence[TaskVector], learned: Statistics, *, keep: Fraction = 0.2) -> tuple[Elected, Statistics]:
    return trim_and_elect(vectors, keep=keep), learned


@merge("adamerging", learn=learn)
def weighted(vectors: Sequence[Vector], piece: TensorPiece, coefficients: Statistics) -> Vector:
    """sum_t lambda_t tau_t."""
    return np.sum([value * vector for value, vector in zip(coefficients[piece.name], vectors, strict=True)], axis=0)


@merge("adamerging_ties", prepare=elect, learn=learn_elected)
def weighted_elected(vectors: Sequence[Vector], piece: TensorPiece, prepared: tuple[Elected, Statistics]) -> Vector:
    return weighted(left(vectors, prepared[0]), piece, prepared[1])


merged_row("adamerging", order=33, title="AdaMerging", paper="Yang et al. 2024", usage=Fixed(1.0), group="later")
merged_row("adamerging_ties", order=43, title="AdaMerging++", paper="Yang et al. 2024", usage=Fixed(1.0), group="later")
