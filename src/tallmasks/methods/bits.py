"""Storage in bits, by the formulae of appendix C of Wang et al. 2024 (one float is 32 bits)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

StorageKind = Literal["single", "finetuned", "masked", "pruned"]
KINDS: tuple[StorageKind, ...] = get_args(StorageKind)

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


def storage(kind: StorageKind, *, tasks: int, trainable_parameters: int, frozen_parameters: int) -> Storage:
    """The cost of serving T ``tasks``, with P' trainable and F frozen parameters.

    ``single``: one model, 32 (P' + F). ``finetuned``: T models that share what is frozen, 32 (T P' + F).
    ``masked``: pretrained model, multi-task vector and a bit per weight and task, (64 + T) P' + 32 F.
    ``pruned``: more than that, since the positions of the kept values come on top.
    """
    copies = {"single": 1, "finetuned": tasks, "masked": 2, "pruned": 2}[kind]
    mask_bits = tasks * trainable_parameters if kind in ("masked", "pruned") else 0
    bits = FLOAT_BITS * (copies * trainable_parameters + frozen_parameters) + mask_bits
    return Storage(bits, lower_bound=kind == "pruned")
