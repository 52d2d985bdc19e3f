"""The controlled experiment (table 1 of Wang et al. 2024): each task trains its own random part of the weights.

The parts are disjoint and equally large, so task vectors cannot interfere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Controlled:
    """A controlled fine-tuning. ``seed`` is used for the training and the partition; task i trains part i."""

    seed: int
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        """The part of file names that follows "s"."""
        return f"{self.seed}-controlled{len(self.tasks)}"

    def partition(self, task: str) -> dict[str, Any]:
        """The key `partition` in the recipe of a task's checkpoint."""
        return {"seed": self.seed, "parts": len(self.tasks), "part": self.tasks.index(task)}


def owners(size: int, parts: int, seed: int) -> NDArray[np.uint8]:
    """The part of each weight, uint8 [size], random in 0 to parts - 1. Part sizes differ by at most one.

    NumPy guarantees that RandomState's stream never changes (NEP 19), so a recipe always yields the same parts.
    """
    assert parts <= 256, "they are uint8"
    parts_of_weights = np.resize(np.arange(parts, dtype=np.uint8), size)
    np.random.RandomState(seed).shuffle(parts_of_weights)
    return parts_of_weights


def part_mask(size: int, partition: dict[str, Any]) -> NDArray[np.bool_]:
    """The weights that a task can change, bool [size]. ``partition``: see `Controlled.partition`."""
    return owners(size, partition["parts"], partition["seed"]) == partition["part"]
