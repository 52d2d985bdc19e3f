"""Recognises the matrices of linear layers of attention and MLP by name and shape, in any naming scheme."""

from __future__ import annotations

import re

from tallmasks.methods.rows.parts.block_numbers import block_of
from tallmasks.methods.rows.parts.singular_vectors import is_matrix

TABLE = re.compile(r"embed|relative_attention_bias|position_bias")
"""Lookup tables, inside blocks too."""
OUTSIDE = re.compile(
    r"(^|\.)(wte|wpe|shared|lm_head|head|heads|classifier|score|fc_norm)(\.|$)"
    r"|(^|\.|text_|visual_)(proj|projection)$|_projection\."
)
"""Tables before the blocks and layers after them. Inside a block, tensors with these names are linear layers."""


def is_linear_layer(name: str, shape: tuple[int, ...]) -> bool:
    """True for the matrix of a linear layer of attention or MLP; False for vectors, tables, heads and projections."""
    block = block_of(name)
    return is_matrix(shape) and not TABLE.search(name) and not OUTSIDE.search(block[0] if block else name)


def is_layer_in_block(name: str, shape: tuple[int, ...]) -> bool:
    """True for a matrix of `is_linear_layer` inside a numbered block."""
    return block_of(name) is not None and is_linear_layer(name, shape)
