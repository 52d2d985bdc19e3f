"""tau_MTL as a bundle stores it in a few bits a value."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.codings import Levels, in_few_bits
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.inputs import Source, input
from tallmasks.vectors.levels import normal_levels, rounded_rows

Bits = Literal[2, 3, 4, 8]
PLAIN = 32
"""Bits of values that are not rounded to levels."""
BitsOrPlain = Literal[2, 3, 4, 8, 32]


def tau_codings(layout: Layout, bits: int) -> dict[str, Levels]:
    """The codings of the tensors of tau_MTL that are rounded to levels; none if ``bits`` is 32."""
    shapes = layout.by_name.items() if bits != PLAIN else ()
    codings = {name: in_few_bits(tuple(shape), bits) for name, shape in shapes}
    return {name: coding for name, coding in codings.items() if isinstance(coding, Levels)}


@input("stored_vector", "tau_MTL with matrices rounded to `bits` bits a value, float32 [P']", per="benchmark",
       of=("multi_task_vector", "layout"))  # fmt: skip
def stored_vector(source: Source, task: int, lambda_index: int, *, bits: BitsOrPlain = 32) -> NDArray[np.float32]:
    """Rounded by `rounded_rows`; zeros stay zeros, because they are in no mask of a bundle. With 32 bits it is tau_MTL
    itself."""
    whole = source.multi_task_vector
    if bits == PLAIN:
        return whole
    out = np.array(whole)
    tensors = source.layout.split(out)
    for name, coding in tau_codings(source.layout, bits).items():
        tensor = tensors[name]
        tensor[...] = coding.values(rounded_rows(tensor, coding.group, normal_levels(bits))) * (tensor != 0)
    return out
