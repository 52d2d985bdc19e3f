"""SLERP: from one model to another on the arc between them, tensor by tensor."""

import numpy as np

from tallmasks.methods import Fixed, Place, Share, Vector, merge, merged_row
from tallmasks.store.errors import TallmasksError

STRAIGHT = 0.9995
LEAST = 1e-8


@merge("slerp", over="models")
def slerp(models: Vector, place: Place, facts: None, *, t: Share = 0.5) -> Vector:
    """float32 [1 + T, ...] -> [...]: (sin((1 - t) a) x + sin(t a) y) / sin a, with the angle a between x and y.

    Of two tasks x is the first; of one task it is the base.  Where |cos a| > 0.9995 it is (1 - t) x + t y, as in
    mergekit (slerp.py).  Raises TallmasksError for more tasks.
    """
    if len(models) > 3:
        raise TallmasksError(f"slerp merges two models: found {len(models) - 1} tasks, expected 2, or 1 and its base")
    first, second = models[-2:]
    lengths = [np.sqrt(np.square(model, dtype=np.float64).sum()) for model in (first, second)]
    product = np.multiply(first, second, dtype=np.float64).sum()
    for length in lengths:
        product /= length if length > LEAST else 1
    first_share, second_share = 1 - t, t
    if abs(product) <= STRAIGHT:
        angle = np.arccos(product)
        first_share, second_share = (np.sin(share * angle) / np.sin(angle) for share in (1 - t, t))
    return np.float32(first_share) * first + np.float32(second_share) * second


merged_row("slerp", row=160, title="SLERP", paper="Shoemake 1985", protocol=Fixed(1.0), group="checkpoints")
