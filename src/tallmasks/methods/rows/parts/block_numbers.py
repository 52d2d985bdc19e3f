"""What the names of tensors say, where layers are treated differently: in any layout, without a family."""

from __future__ import annotations

import re
from collections.abc import Iterable

NUMBER = re.compile(r"(?:^|\.)(\d+)\.")
"""The first number that stands between dots: of a block, in every transformer that numbers its blocks."""


def block_of(name: str) -> tuple[str, int] | None:
    """The stack of blocks that a tensor is in, as the name before the number, and the number; None outside blocks."""
    number = NUMBER.search(name)
    return (name[: number.start()], int(number[1])) if number else None


def depths(names: Iterable[str]) -> dict[str, float]:
    """l / (L - 1) for every tensor of block l of L, 0 where there is one block; and 0 outside blocks.

    L is counted stack by stack, so that an encoder's last block and a decoder's are both at 1.
    """
    blocks = {name: block_of(name) for name in names}
    last: dict[str, int] = {}
    for stack, number in filter(None, blocks.values()):
        last[stack] = max(number, last.get(stack, 0))
    return {name: block[1] / last[block[0]] if block and last[block[0]] else 0.0 for name, block in blocks.items()}
