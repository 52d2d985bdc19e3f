"""Methods with the update scale * mask * tau_MTL per task."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import Layout
from tallmasks.methods.merges import Vector


@dataclass(frozen=True)
class ScaledMask:
    """The update scale * mask * tau_MTL. The scale makes it as long as tau_t.

    Attributes:
        mask: ``(task_vector, multi_task_vector) -> mask``, float32 [n] each -> bool [n], for a slice.
        length: ``(slice, size) -> length``, what a slice of a tensor with ``size`` values adds to a vector's length.
    """

    mask: Callable[[Vector, Vector], NDArray[np.bool_]]
    length: Callable[[Vector, int], float]

    def __call__(self, task_vector: Any, multi_task_vector: Any, stored_vector: Any, layout: Layout) -> Any:
        """The update of a whole model, float32 [P']. Masks and scales are those of tau_MTL before it is rounded."""
        mask = self.mask(task_vector, multi_task_vector)
        own, held = (
            math.fsum(self.length(part, math.prod(part.shape)) for part in layout.split(vector).values())
            for vector in (task_vector, multi_task_vector * mask)
        )
        return stored_vector * mask * self.scale(own, held)

    @staticmethod
    def scale(own: float, held: float) -> float:
        """The scale from the lengths of tau_t (``own``) and of the masked tau_MTL (``held``)."""
        return own / held if held else 0.0
