"""Stochastic rounding: each task vector as few random multiples of a step that belongs to the base."""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tallmasks.methods import Between, PerTask, Vector, method, quantizer, storage_formulas
from tallmasks.methods.few_bits import STEPS_OF_VECTORS
from tallmasks.vectors.multiples import Steps, is_vector, root_mean_square, rounded_at_random, rounded_to_nearest

Step = Annotated[float, Between(1e-6, 1e6)]


@method(
    name="stochastic_rounding",
    order=152,
    title="Stochastic rounding",
    paper="after Alistarh et al. 2017, QSGD, and Yu et al. 2024, DARE",
    usage=PerTask(),
    storage=storage_formulas.measured,
)
@quantizer(row_step="step")
def stochastic_rounding(
    tau: Vector,
    steps_of: Callable[[np.float32], Steps],
    name: str,
    shape: tuple[int, ...],
    start: int,
    *,
    step: Step = 0.1,
) -> tuple[NDArray[np.int32], np.float32]:
    """q = sign(x) (floor(|x| / s) + B) for each weight x of tau_t, where B is 1 with probability frac(|x| / s), so that
    E[s q] = x. The step of row r is s = max(step * RMS(row r of theta_0), RMS(tau_t)).

    So the noise is a small fraction of the weights or of the change, whichever is larger. If the change is small, most
    q are 0. Vectors are rounded to the nearest tenth of their RMS.

    QSGD rounds gradients this way, with a step from the gradient itself; DARE keeps a random fraction of the weights
    and enlarges all of them alike, also those that are larger than a step.
    """
    if is_vector(shape):
        return rounded_to_nearest(tau, STEPS_OF_VECTORS)[:2]
    scale = np.float32(root_mean_square(tau)) or np.float32(1)
    return rounded_at_random(tau, steps_of(scale), shape, start, name), scale
