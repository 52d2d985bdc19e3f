"""Block numbers from tensor names, in any naming scheme."""

from __future__ import annotations

import re
from collections.abc import Iterable

NUMBER = re.compile(r"(?:^|\.)(\d+)\.")
"""The first number between dots: the block number in every transformer that numbers its blocks."""


def block_of(name: str) -> tuple[str, int] | None:
    """The stack of a tensor (its name before the block number) and the block number; None outside blocks."""
    number = NUMBER.search(name)
    return (name[: number.start()], int(number[1])) if number else None


def depths(names: Iterable[str]) -> dict[str, float]:
    """l / (L - 1) for every tensor in block l of L; 0 if there is one block, and outside blocks.

    L is counted per stack, so that the last blocks of an encoder and of a decoder are both at 1.
    """
    blocks = {name: block_of(name) for name in names}
    last: dict[str, int] = {}
    for stack, number in filter(None, blocks.values()):
        last[stack] = max(number, last.get(stack, 0))
    return {name: block[1] / last[block[0]] if block and last[block[0]] else 0.0 for name, block in blocks.items()}
