"""Methods whose update of a task is a mask over tau_MTL at a scale of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class ScaledMask:
    """How a bundle stores a task's update as a mask over tau_MTL and one scale: that at which what the mask holds is as
    long as tau_t.

    Attributes:
        mask: ``(task_vector, multi_task_vector) -> held``, float32 [n] each -> bool [n], of a slice.
        length: ``(slice, size) -> length``: what a slice of a tensor of so many values adds to a vector's length.
    """

    mask: Callable[[Vector, Vector], NDArray[np.bool_]]
    length: Callable[[Vector, int], float]

    @staticmethod
    def scale(own: float, held: float) -> float:
        """The scale of a task whose tau_t, and what its mask holds, have these lengths."""
        return own / held if held else 0.0
