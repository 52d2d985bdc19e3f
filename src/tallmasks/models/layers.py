"""Where in a network a tensor lies, from its name: its layer and what kind of tensor it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallmasks.store.errors import TallmasksError

BEFORE, AFTER = "before", "after"
"""The layers' names of what comes before the first block, and after the last one."""


@dataclass(frozen=True)
class Places:
    """How a family names its tensors.

    Attributes:
        block: matches the name of a tensor in a block; its group is the block's number.
        before: what lies before the first block, by the start of its name; the rest lies after the last one.
        kinds: pattern in the name, kind; the first that matches counts.
    """

    block: str
    before: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]


FAMILIES = {
    "clip": Places(
        block=r"\.resblocks\.(\d+)\.",
        before=("visual.conv1", "visual.class_embedding", "visual.positional_embedding", "visual.ln_pre"),
        kinds=(
            (r"bias$", "biases"),
            (r"\bln_", "norms"),
            (r"embedding$", "embeddings"),
            (r"conv1", "patches"),
            (r"in_proj", "attention in"),
            (r"out_proj", "attention out"),
            (r"c_fc", "MLP in"),
            (r"c_proj", "MLP out"),
            (r"proj$", "projection"),
        ),
    ),
}


def place(family: str, tensor: str) -> tuple[str, str]:
    """The layer ("before", "0", "1", ..., "after") and the kind of a tensor; "other" where no kind is known.

    Raises:
        TallmasksError: there is no such family.
    """
    if family not in FAMILIES:
        raise TallmasksError(f"no tensor names are known of model family {family!r}; of these: {', '.join(FAMILIES)}")
    names = FAMILIES[family]
    kind = next((kind for pattern, kind in names.kinds if re.search(pattern, tensor)), "other")
    if block := re.search(names.block, tensor):
        return block[1], kind
    return BEFORE if tensor.startswith(names.before) else AFTER, kind


def in_order(layer: str) -> float:
    """Sorts layers from the input to the output."""
    return {BEFORE: -1.0, AFTER: float("inf")}.get(layer, 0.0) if not layer.isdigit() else float(layer)
