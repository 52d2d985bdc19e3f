"""TVQ: each task's matrices rounded to evenly spaced levels."""

from typing import Any

from tallmasks.methods import PerTask, Vector, by_tensor, method, storage_formulas
from tallmasks.methods.rows.parts.even_levels import Bits, evenly_rounded, is_rounded


@method(
    name="tvq",
    order=154,
    title="TVQ",
    paper="Kim et al. 2025, TVQ",
    usage=PerTask(),
    storage=storage_formulas.evenly_rounded,
    group="later",
)
@by_tensor
def tvq(tensor: Vector, name: str, *, bits: Bits = 3) -> Any:
    """Every linear layer and convolution of tau_t rounded to 2^bits evenly spaced levels from its smallest to its
    largest value. Other tensors are unchanged.

    The rounding is that of the official code (see `evenly_rounded`), whose zero point is rounded, so 0 is a level. It
    tells tensors by their names in CLIP: it rounds those with "weight" in their name, except norms and token
    embeddings.
    """
    return evenly_rounded(tensor, bits) if is_rounded(name, tuple(tensor.shape)) else tensor
