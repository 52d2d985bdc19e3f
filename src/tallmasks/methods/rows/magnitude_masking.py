"""Magnitude masking: the summed vector where the task's own vector is large."""

import numpy as np

from tallmasks.methods import Fraction, KeptFraction, PerTask, Vector, method, storage_formulas


def kept_fraction(tasks: int, *, keep: Fraction = 0.1) -> float:
    """The fraction of the parameters that each mask keeps."""
    return keep


@method(
    name="magnitude_masking",
    order=90,
    title="Magnitude Masking",
    paper="Wang et al. 2024, compression baseline",
    usage=PerTask(),
    storage=storage_formulas.masked,
    merge="sum",
    kept=KeptFraction(kept_fraction),
)
def magnitude_masking(task_vector: Vector, threshold: np.float32, multi_task_vector: Vector) -> Vector:
    """tau_MTL where |tau_t| >= v_t (the top fraction `keep`), 0 elsewhere."""
    return multi_task_vector * (abs(task_vector) >= threshold)
