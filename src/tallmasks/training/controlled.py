"""The controlled experiment: each task may change only its own random, equal, disjoint part of the weights.

Table 1 of Wang et al. 2024.  Task vectors then cannot interfere weight by weight, and the multi-task vector holds
each of them whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.errors import TallmasksError


@dataclass(frozen=True)
class Controlled:
    """A controlled fine-tuning, in the place of a fine-tuning seed.

    Attributes:
        seed: of the fine-tuning and of the partition.
        tasks: who has a part, in the order of the parts.
    """

    seed: int
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        """As it stands in file names, behind an "s"."""
        return f"{self.seed}-controlled{len(self.tasks)}"

    def partition(self, task: str) -> dict[str, Any]:
        """What a checkpoint's recipe says of its part.

        Raises:
            TallmasksError: the task has no part.
        """
        if task not in self.tasks:
            raise TallmasksError(f"{task} has no part of the weights; those who have: {', '.join(self.tasks)}")
        return {"seed": self.seed, "parts": len(self.tasks), "part": self.tasks.index(task)}


def owners(size: int, parts: int, seed: int) -> NDArray[np.uint8]:
    """Whose each weight is: uint8 [size], parts 0..parts-1 at random, their sizes equal up to one weight.

    The stream is the one that NumPy has promised never to change (NEP 19), since it is a part of recipes.

    Raises:
        TallmasksError: not 1 to 255 parts, or more parts than weights.
    """
    if not 1 <= parts <= min(255, size):
        raise TallmasksError(f"{size} weights cannot be dealt out to {parts} tasks; give 1 to 255 tasks")
    found = np.resize(np.arange(parts, dtype=np.uint8), size)
    np.random.RandomState(seed).shuffle(found)
    return found


def part_mask(size: int, partition: dict[str, Any]) -> NDArray[np.bool_]:
    """bool [size]: the weights that one task may change, from the `partition` of its recipe."""
    return owners(size, partition["parts"], partition["seed"]) == partition["part"]


def disjoint(masks: Sequence[NDArray[np.bool_]]) -> bool:
    """Whether no weight is in two of the masks [P']."""
    return bool((np.sum(masks, axis=0, dtype=np.uint8) <= 1).all())
