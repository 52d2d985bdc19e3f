"""A tensor as it is, in float32; and what every coding has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.tensor_files import TensorSpec


@dataclass(frozen=True)
class Whole:
    """Float32 [shape], under the tensor's own name."""

    kind: ClassVar[str] = "whole"
    shape: tuple[int, ...]

    @property
    def text(self) -> str:
        """How bundle.json calls it: the kind, and behind a colon a number that the shape leaves open."""
        return self.kind

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """What is stored, by what stands behind the tensor's name."""
        return {"": TensorSpec(np.dtype("<f4"), self.shape)}

    def values(self, content: Any) -> Any:
        """The update that a method evaluates, an array or a GPU's tensor [shape], from what its function found."""
        return content

    def pack(self, content: Any) -> dict[str, NDArray]:
        """What is stored, from arrays that a method's function found."""
        return {"": np.asarray(content, np.float32)}

    def piece(self, parts: Mapping[str, NDArray], start: int, stop: int) -> NDArray[np.float32]:
        """Values start..stop of the flattened update out of what is stored, float32; the same however it is cut."""
        return np.array(parts[""].reshape(-1)[start:stop])

    def problem(self, parts: Mapping[str, NDArray]) -> str | None:
        """What the parts hold, all of their right dtypes, that :meth:`pack` never makes; None if nothing.

        Of a part of bytes the largest value and the last are enough; other parts are not looked at.
        """
        return None


def size_of(shape: tuple[int, ...]) -> int:
    """How many values a tensor has."""
    return math.prod(shape)


ONE_SCALE = TensorSpec(np.dtype("<f4"), (1,))
"""A magnitude for a whole tensor."""
