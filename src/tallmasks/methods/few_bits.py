"""tau_MTL as a bundle stores it in a few bits a value."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.codings import Levels, in_few_bits
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.inputs import Source, input
from tallmasks.vectors.levels import normal_levels, rounded_rows

PLAIN = 32
"""Bits of values that are not rounded to levels."""
BitsOrPlain = Literal[2, 3, 4, 8, 32]


def tau_codings(layout: Layout, bits: int) -> dict[str, Levels]:
    """The codings of the tensors of tau_MTL that are rounded to levels; none if ``bits`` is 32."""
    shapes = layout.by_name.items() if bits != PLAIN else ()
    codings = {name: in_few_bits(tuple(shape), bits) for name, shape in shapes}
    return {name: coding for name, coding in codings.items() if isinstance(coding, Levels)}


@input("stored_vector", "tau_MTL, its matrices rounded to `bits` bits, float32 [P']", per="benchmark",
       of=("multi_task_vector", "layout"))  # fmt: skip
def stored_vector(source: Source, task: int, lambda_index: int, *, bits: BitsOrPlain = 32) -> NDArray[np.float32]:
    """tau_MTL itself with 32 bits."""
    return source.multi_task_vector if bits == PLAIN else rounded(source.multi_task_vector, source.layout, bits)


def rounded(vector: NDArray[np.float32], layout: Layout, bits: int) -> NDArray[np.float32]:
    """tau_MTL, float32 [P'], as a bundle restores it: rounded by `rounded_rows`, except zeros, which no mask keeps."""
    out = np.array(vector)
    tensors = layout.split(out)
    for name, coding in tau_codings(layout, bits).items():
        tensor = tensors[name]
        tensor[...] = coding.values(rounded_rows(tensor, coding.group, normal_levels(bits))) * (tensor != 0)
    return out
