"""Block numbers from tensor names, in any naming scheme."""

from __future__ import annotations

import re
from collections.abc import Iterable

NUMBER = re.compile(r"(?:^|\.)(\d+)\.")
"""The first number between dots, which is the block number in transformers that number their blocks."""


def block_of(name: str) -> tuple[str, int] | None:
    """The stack of a tensor (its name before the block number) and the block number; None outside blocks."""
    number = NUMBER.search(name)
    return (name[: number.start()], int(number[1])) if number else None


def depths(names: Iterable[str]) -> dict[str, float]:
    """l / (L - 1) for every tensor in block l of L; 0 outside blocks, and if L is 1.

    L is counted per stack, so the last blocks of an encoder and a decoder both have depth 1.
    """
    blocks = {name: block_of(name) for name in names}
    last: dict[str, int] = {}
    for stack, number in filter(None, blocks.values()):
        last[stack] = max(number, last.get(stack, 0))
    return {name: block[1] / last[block[0]] if block and last[block[0]] else 0.0 for name, block in blocks.items()}
