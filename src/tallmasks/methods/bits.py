"""Storage in bits, by the formulae of appendix C of Wang et al. 2024 (one float is 32 bits).

Each function is what a method may give as its ``storage``: from T tasks, P' trainable and F frozen parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FLOAT_BITS = 32


@dataclass(frozen=True)
class Storage:
    """What a method stores, in bits; with ``lower_bound``, more than that."""

    bits: int
    lower_bound: bool = False

    @property
    def gigabits(self) -> float:
        """In the paper's unit, Gb = 1e9 bits."""
        return self.bits / 1e9


Storing = Callable[[int, int, int], Storage]


def single(tasks: int, trainable: int, frozen: int) -> Storage:
    """One model: 32 (P' + F)."""
    return Storage(FLOAT_BITS * (trainable + frozen))


def finetuned(tasks: int, trainable: int, frozen: int) -> Storage:
    """T models that share what is frozen: 32 (T P' + F)."""
    return Storage(FLOAT_BITS * (tasks * trainable + frozen))


def masked(tasks: int, trainable: int, frozen: int) -> Storage:
    """Pretrained model, multi-task vector and a bit per weight and task: (64 + T) P' + 32 F."""
    return Storage(FLOAT_BITS * (2 * trainable + frozen) + tasks * trainable)


def pruned(tasks: int, trainable: int, frozen: int) -> Storage:
    """As much as `masked`, and more, since the positions of the kept values come on top."""
    return Storage(masked(tasks, trainable, frozen).bits, lower_bound=True)


def masked_and_scaled(tasks: int, trainable: int, frozen: int) -> Storage:
    """As `masked`, and a float per task."""
    return Storage(masked(tasks, trainable, frozen).bits + FLOAT_BITS * tasks)


KNOWN: dict[str, Storing] = {rule.__name__: rule for rule in (single, finetuned, masked, pruned, masked_and_scaled)}
"""By the names that methods may give."""
