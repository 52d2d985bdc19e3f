"""Choosing scaling coefficients and mask lambdas on validation data; scores.

Counts or sums of scores come in; nothing here knows a model, a file or a test split.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallmasks.errors import TallmasksError


def accuracies(correct: ArrayLike, total: ArrayLike) -> NDArray[np.float64]:
    """Fractions of right answers (counts or sums of scores, [tasks] or [tasks, grid]) of examples [tasks]."""
    counts, totals = np.asarray(correct, np.float64), np.asarray(total, np.float64)
    return counts / totals.reshape(totals.shape + (1,) * (counts.ndim - totals.ndim))


def wilson_interval(correct: ArrayLike, total: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lower and upper end of the 95 % interval of a binomial proportion (Wilson 1927), as fractions."""
    n, z = np.asarray(total, np.float64), 1.959963984540054  # the normal distribution's quantile of 97.5 %
    p = np.asarray(correct, np.float64) / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return np.clip(centre - half, 0, p), np.clip(centre + half, p, 1)  # exactly 0 and 1 at the ends, whatever rounds


def mean_interval(correct: ArrayLike, total: ArrayLike) -> tuple[float, float]:
    """The 95 % interval of the mean over tasks of their accuracies, as fractions.

    The distances of the ends of each task's Wilson interval are joined by their squares (Zou and Donner 2008).
    """
    low, high = wilson_interval(correct, total)
    each = accuracies(correct, total)
    off = [float(np.sqrt(np.square(end - each).sum())) / len(each) for end in (low, high)]
    return float(each.mean()) - off[0], float(each.mean()) + off[1]


def normalized(accuracy: ArrayLike, finetuned: ArrayLike, tasks: Sequence[str]) -> NDArray[np.float64]:
    """acc(model) / acc(fine-tuned) per task (Wang et al. 2024, section 2).

    ``accuracy``: fractions, [tasks] or [tasks, grid]; ``finetuned``: those of each task's own fine-tuned model on the
    same split, [tasks].

    Raises TallmasksError where a fine-tuned model has no right answer.
    """
    values, base = np.asarray(accuracy, np.float64), np.asarray(finetuned, np.float64)
    if not base.all():
        failed = ", ".join(task for task, value in zip(tasks, base, strict=True) if value == 0)
        raise TallmasksError(
            f"the fine-tuned model of {failed} answers nothing right, so normalised accuracies are undefined; "
            "look at its loss curve and at its fine-tuning settings in params.yaml"
        )
    return values / base.reshape(base.shape + (1,) * (values.ndim - base.ndim))


def choose_coefficient(correct: ArrayLike, total: ArrayLike, finetuned: ArrayLike, tasks: Sequence[str]) -> int:
    """The grid index with the best normalised validation accuracy [tasks, grid], as a mean over the tasks.

    Of equally good ones it is the first, here and below.
    """
    return int(normalized(accuracies(correct, total), finetuned, tasks).mean(axis=0).argmax())


def choose_per_task(correct: ArrayLike) -> list[int]:
    """The grid index of lambda_t for each task: the most right answers on its validation data, [tasks, grid]."""
    return np.argmax(correct, axis=1).tolist()
