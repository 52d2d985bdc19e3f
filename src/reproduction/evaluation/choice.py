"""Accuracies, confidence intervals, and the choice of scaling coefficients and mask lambdas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallmasks.errors import TallmasksError


def accuracies(correct: ArrayLike, total: ArrayLike) -> NDArray[np.float64]:
    """Counts or sums of scores, [tasks] or [tasks, grid], divided by the numbers of examples, [tasks]."""
    counts, totals = np.asarray(correct, np.float64), np.asarray(total, np.float64)
    return counts / totals.reshape(totals.shape + (1,) * (counts.ndim - totals.ndim))


def wilson_interval(correct: ArrayLike, total: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bounds of the 95 % intervals of binomial proportions (Wilson 1927), as fractions."""
    n, z = np.asarray(total, np.float64), 1.959963984540054  # 97.5 % quantile of the normal distribution
    p = np.asarray(correct, np.float64) / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return np.clip(centre - half, 0, p), np.clip(centre + half, p, 1)  # rounding must not move 0 or 1


def mean_interval(correct: ArrayLike, total: ArrayLike) -> tuple[float, float]:
    """The 95 % interval of the tasks' mean accuracy, as fractions.

    Combines the tasks' Wilson intervals: the squared distances to their bounds are summed (Zou and Donner 2008).
    """
    low, high = wilson_interval(correct, total)
    each = accuracies(correct, total)
    off = [float(np.sqrt(np.square(end - each).sum())) / len(each) for end in (low, high)]
    return float(each.mean()) - off[0], float(each.mean()) + off[1]


def normalized(accuracy: ArrayLike, finetuned: ArrayLike, tasks: Sequence[str]) -> NDArray[np.float64]:
    """acc(model) / acc(fine-tuned) per task (Wang et al. 2024, section 2).

    ``accuracy``: fractions, [tasks] or [tasks, grid]. ``finetuned``: those of the fine-tuned models on the same split,
    [tasks]. Raises TallmasksError if one of these is 0.
    """
    values, base = np.asarray(accuracy, np.float64), np.asarray(finetuned, np.float64)
    if not base.all():
        failed = ", ".join(task for task, value in zip(tasks, base, strict=True) if value == 0)
        raise TallmasksError(
            f"the fine-tuned model of {failed} has no correct answer, so normalised accuracies are undefined; "
            "check its loss curve and its fine-tuning settings in params.yaml"
        )
    return values / base.reshape(base.shape + (1,) * (values.ndim - base.ndim))


def choose_coefficient(correct: ArrayLike, total: ArrayLike, finetuned: ArrayLike, tasks: Sequence[str]) -> int:
    """The first grid index with the best mean normalised accuracy. ``correct``: [tasks, grid]."""
    means = normalized(accuracies(correct, total), finetuned, tasks).mean(axis=0)
    return int(means.round(12).argmax())  # equal means can differ in the last bit


def choose_per_task(correct: ArrayLike) -> list[int]:
    """For each task the first grid index with the most correct answers. ``correct``: [tasks, grid]."""
    return np.argmax(correct, axis=1).tolist()
