"""tau_MTL as a bundle stores it: the nearest multiples of a step, about ``bits`` bits a value."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tallmasks.methods.codec import jobs_of, value_of
from tallmasks.methods.inputs import MethodInputs, method_input
from tallmasks.parallel import parallel
from tallmasks.vectors.kernels import Vector
from tallmasks.vectors.multiples import Quantized, is_vector, rounded_to_nearest

STEPS_OF_VECTORS = 10
"""Steps in the root mean square of a vector's values, whose rounding error then is 3 % of it."""
PLAIN = 32
"""Bits of values that are not rounded."""
BitsOrPlain = Literal[2, 3, 4, 8, 32]


@method_input("stored_vector", "tau_MTL, rounded to about `bits` bits a value, float32 [P']", per="benchmark",
       of=("multi_task_vector", "layout"))  # fmt: skip
def stored_vector(source: MethodInputs, task: int, lambda_index: int, *, bits: BitsOrPlain = 32) -> NDArray[np.float32]:
    """tau_MTL itself with 32 bits."""
    vector = source.multi_task_vector
    if bits == PLAIN:
        return vector
    out = np.empty_like(vector)

    def fill(job: tuple[str, tuple[int, ...], int, int, int]) -> None:
        _, shape, offset, start, stop = job
        here = slice(offset + start, offset + stop)
        out[here] = value_of(in_few_bits(vector[here], shape, bits), shape, start)

    parallel(fill, jobs_of(source.layout))
    return out


def in_few_bits(values: Vector, shape: tuple[int, ...], bits: int) -> Quantized:
    """A piece of tau_MTL, float32 [n]. A matrix has 2^(bits - 2) steps in the root mean square of a piece: then the
    entropy of normally distributed values is ``bits`` bits, and that of a sparse vector is smaller."""
    return rounded_to_nearest(values, STEPS_OF_VECTORS if is_vector(shape) else 2 ** (bits - 2))
