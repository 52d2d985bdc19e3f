"""Task vectors of a few bits a weight: rows of matrices rounded to the Lloyd-Max levels of a normal variable."""

from typing import Any

from tallmasks.bundles.codings import Coding, Levels, in_few_bits
from tallmasks.methods import PerTask, Vector, bits, by_tensor, method
from tallmasks.methods.few_bits import Bits
from tallmasks.vectors.levels import rounded_rows


def coding(shape: tuple[int, ...], *, bits: Bits = 2) -> Coding:
    return in_few_bits(shape, bits)


@method(
    name="lloyd_max",
    row=152,
    title="Lloyd-Max",
    paper="Lloyd 1982; Max 1960",
    protocol=PerTask(),
    storage=bits.rounded,
    group="later",
)
@by_tensor(coding)
def lloyd_max(matrix: Vector, coding: Levels) -> Any:
    """For every row x of every matrix of tau_t, a q: the levels q nearest to x divided by its root mean square, times
    the scale a = <x, q> / <q, q>. Vectors are unchanged.

    The 2^bits levels are those with the least mean squared error for a normal variable. TVQ and RTVQ (Kim et al. 2025)
    use evenly spaced levels and one range per tensor, which the largest weight decides.
    """
    return rounded_rows(matrix, coding.group, coding.bits)
