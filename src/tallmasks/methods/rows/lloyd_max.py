"""Task vectors of a few bits a weight: rows of matrices rounded to Lloyd-Max levels."""

from typing import Any

from tallmasks.bundles.codings import Coding, Levels, in_few_bits
from tallmasks.methods import PerTask, Vector, by_tensor, method, storage_formulas
from tallmasks.vectors.levels import Bits, fitted_levels, rounded_rows


def coding(shape: tuple[int, ...], *, bits: Bits = 3) -> Coding:
    return in_few_bits(shape, bits)


@method(
    name="lloyd_max",
    row=152,
    title="Lloyd-Max",
    paper="Lloyd 1982; Max 1960",
    protocol=PerTask(),
    storage=storage_formulas.rounded,
)
@by_tensor(coding)
def lloyd_max(matrix: Vector, coding: Levels) -> Any:
    """For every row x of every matrix of tau_t, a q: the levels q nearest to x divided by its root mean square, times
    the scale a = |x| / |q|, which keeps the row's length. Vectors are unchanged.

    A matrix has 2^bits levels, fitted to its values by Lloyd's iteration, so that weights that did not move, which are
    common if checkpoints are bfloat16, have one of them. TVQ (Kim et al. 2025) has evenly spaced levels and one range
    per tensor, which its two extreme weights decide.
    """
    return rounded_rows(matrix, coding.group, fitted_levels(matrix, coding.group, coding.bits))
