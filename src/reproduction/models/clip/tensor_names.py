"""open_clip's tensor names, for code that does not import torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

TRAINABLE = "visual."
"""Prefix of the fine-tuned tensors."""
UNCOUNTED = ("transformer.", "text.transformer.", "tokenizer.", "buffers.")
"""Prefixes of tensors that the paper's storage formula does not count."""
BLOCK = re.compile(r"\.resblocks\.(\d+)\.")
STAGE = re.compile(r"\bvisual\.layer(\d+)\.")
"""A stage of a ResNet, counted from 1."""
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
"""Pattern in a tensor's name, and the tensor's kind; the first match counts."""


def parameter_counts(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """P' and F of the paper's storage formula, from the shapes in a pretrained file."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items() if not name.startswith(UNCOUNTED)}
    trainable = sum(size for name, size in sizes.items() if name.startswith(TRAINABLE))
    return trainable, sum(sizes.values()) - trainable


def layer_of(tensor: str) -> tuple[str, str]:
    """A tensor's layer ("before", "0", "1", ..., "after"; for a ResNet the stage) and kind (of `KINDS`, or "other")."""
    kind = next((kind for pattern, kind in KINDS if re.search(pattern, tensor)), "other")
    if block := BLOCK.search(tensor):
        return block[1], kind
    if stage := STAGE.search(tensor):
        return str(int(stage[1]) - 1), kind
    return "before" if tensor.startswith(BEFORE_BLOCKS) else "after", kind
