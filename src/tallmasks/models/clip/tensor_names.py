"""open_clip's tensor names, for steps without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

TRAINABLE = "visual."
"""The prefix of the tensors that fine-tuning changes."""
UNCOUNTED = ("transformer.", "text.transformer.", "tokenizer.", "buffers.")
"""Prefixes of the tensors that the paper's storage formula leaves out."""
BLOCK = re.compile(r"\.resblocks\.(\d+)\.")
STAGE = re.compile(r"\bvisual\.layer(\d+)\.")
"""A ResNet's, from 1."""
BEFORE_BLOCKS = ("visual.conv", "visual.bn", "visual.class_embedding", "visual.positional_embedding", "visual.ln_pre")
KINDS = (
    (r"bias$", "biases"),
    (r"\bln_|\bbn\d|downsample\.1", "norms"),
    (r"embedding$", "embeddings"),
    (r"layer\d+\.|visual\.conv[23]", "convolutions"),
    (r"conv1", "patches"),
    (r"in_proj", "attention in"),
    (r"out_proj", "attention out"),
    (r"c_fc", "MLP in"),
    (r"c_proj", "MLP out"),
    (r"proj$", "projection"),
)
"""Pattern in a tensor's name, kind of tensor; the first that matches counts."""


def parameter_counts(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """P' and F of the paper's storage formula, from the shapes in a pretrained file, without the text transformer."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items() if not name.startswith(UNCOUNTED)}
    trainable = sum(size for name, size in sizes.items() if name.startswith(TRAINABLE))
    return trainable, sum(sizes.values()) - trainable


def layer_of(tensor: str) -> tuple[str, str]:
    """The layer ("before", "0", "1", ..., "after") and the kind of a tensor, "other" for none of `KINDS`.

    A ResNet's layers are its stages.
    """
    kind = next((kind for pattern, kind in KINDS if re.search(pattern, tensor)), "other")
    if block := BLOCK.search(tensor):
        return block[1], kind
    if stage := STAGE.search(tensor):
        return str(int(stage[1]) - 1), kind
    return "before" if tensor.startswith(BEFORE_BLOCKS) else "after", kind
