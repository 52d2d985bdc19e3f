"""Magnitude pruning: each task keeps the largest entries of its own task vector."""

import numpy as np

from tallmasks.methods import KeptFraction, PerTask, Vector, method, storage_formulas
from tallmasks.methods.storage_formulas import FLOAT_BITS


def kept_fraction(tasks: int) -> float:
    """q = (32 + T) / (32 T): the kept values then take as much storage as TALL-masks."""
    return (FLOAT_BITS + tasks) / (FLOAT_BITS * tasks)


@method(
    name="magnitude_pruning",
    order=80,
    title="Magnitude Pruning",
    paper="Wang et al. 2024, compression baseline",
    usage=PerTask(),
    storage=storage_formulas.pruned,
    kept=KeptFraction(kept_fraction, of_trainable=True),  # only the trainable part is stored
)
def magnitude_pruning(task_vector: Vector, threshold: np.float32) -> Vector:
    """tau_t where |tau_t| >= v_t, 0 elsewhere."""
    return task_vector * (abs(task_vector) >= threshold)
