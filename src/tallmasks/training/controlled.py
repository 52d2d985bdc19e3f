"""The controlled experiment: each task may change only its own random, equal, disjoint part of the weights.

Table 1 of Wang et al. 2024.  Task vectors then cannot interfere weight by weight, and the multi-task vector holds
each of them whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError


@dataclass(frozen=True)
class Controlled:
    """A controlled fine-tuning: the seed of the training and of the partition, and the tasks by part."""

    seed: int
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        """In file names, behind an "s"."""
        return f"{self.seed}-controlled{len(self.tasks)}"

    def partition(self, task: str) -> dict[str, Any]:
        """The task's part in a checkpoint's recipe."""
        return {"seed": self.seed, "parts": len(self.tasks), "part": self.tasks.index(task)}


def owners(size: int, parts: int, seed: int) -> NDArray[np.uint8]:
    """The part of each weight: uint8 [size], parts 0..parts-1 at random, their sizes equal up to one weight.

    NumPy has promised never to change this stream (NEP 19), which belongs to recipes.

    Raises TallmasksError where there are not 1 to 255 parts, or more parts than weights.
    """
    if not 1 <= parts <= min(255, size):
        raise TallmasksError(f"{size} weights cannot be dealt out to {parts} tasks; give 1 to 255 tasks")
    parts_of_weights = np.resize(np.arange(parts, dtype=np.uint8), size)
    np.random.RandomState(seed).shuffle(parts_of_weights)
    return parts_of_weights


def part_mask(size: int, partition: dict[str, Any]) -> NDArray[np.bool_]:
    """bool [size]: the weights that one task may change, from the `partition` of its recipe."""
    return owners(size, partition["parts"], partition["seed"]) == partition["part"]
