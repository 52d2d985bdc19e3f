"""TIES' disjoint sum and mean without `prepare`, from one piece at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallmasks.vectors import kernels


def agreeing_or_plus(vectors: Sequence[NDArray[np.float32]], *, mean: bool) -> NDArray[np.float32]:
    """The sum or mean of the values with the sign of the sum of T slices, float32 [n]; plus where that sum is 0."""
    out = np.empty(vectors[0].size, np.float32)
    kernels.merge_ties(vectors, [np.float32(0)] * len(vectors), lambda: np.float32(1), out, mean=mean)
    return out
