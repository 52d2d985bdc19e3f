"""Mask lambdas where there is no validation data to choose them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallmasks.methods.merges import Place
from tallmasks.methods.streaming import Merging, Stream
from tallmasks.store.parallel import parallel
from tallmasks.vectors import kernels

FITTED = (0.2, 0.3, 0.4, 0.5, 0.6)
"""The paper's grid."""


def fitted_lambdas(merging: Merging, stream: Stream, grid: Sequence[float] = FITTED) -> list[float]:
    """For each task, the lambda at which m * tau_MTL is as long as tau_t, in the L1 norm.  It is one of an ascending
    grid.

    The distance |m * tau_MTL - tau_t| is smallest at lambda = 1 for every weight, so it chooses nothing.
    docs/bundles.md compares these lambdas with those that validation data chose.
    """

    def work(place: Place) -> np.ndarray:
        rows = stream.rows(place)
        merged = merging(place, rows)
        return np.stack([kernels.kept_lengths(row, merged, grid) for row in rows])

    kept = np.sum(parallel(work, stream.places(merging.over_tensors), merging.threads), axis=0)
    own, lengths = kept[:, -1:], kept[:, :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(np.log(lengths / own))
    return [float(grid[place]) for place in np.nan_to_num(off, nan=np.inf).argmin(axis=1)]
