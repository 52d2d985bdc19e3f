"""What methods over the whole model do alike to arrays and to a GPU's tensors, where operators do not suffice."""

from typing import Any

import numpy as np


def exact(vector: Any) -> Any:
    """The same numbers in float64, so that sums do not depend on where they are added up."""
    return vector.astype(np.float64) if isinstance(vector, np.ndarray) else vector.double()


def eigenvectors(symmetric: Any) -> Any:
    """Those of a symmetric matrix, one a column, by ascending eigenvalue."""
    if isinstance(symmetric, np.ndarray):
        return np.linalg.eigh(symmetric).eigenvectors
    import torch

    return torch.linalg.eigh(symmetric).eigenvectors


def smallest(values: Any, rank: int) -> float:
    """The value at a place, from 0, of the ascending order."""
    if isinstance(values, np.ndarray):
        return float(np.partition(values, rank)[rank])
    return float(values.kthvalue(rank + 1).values)
