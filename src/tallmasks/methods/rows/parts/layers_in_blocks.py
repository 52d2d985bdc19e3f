"""Recognises the matrices of linear layers of attention and MLP by name and shape, in any naming scheme."""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def with_inputs_first(shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """The matrices [inputs, outputs], as in transformers' Conv1D (GPT-2); those of nn.Linear are [outputs, inputs].

    The bias has one value for each output. So a bias as long as the rows shows a Conv1D; if a model has one, its square
    matrices with a bias are taken for Conv1D too.
    """
    biased = {
        name: shape
        for name, shape in shapes.items()
        if len(shape) == 2 and shapes.get(f"{name.removesuffix('weight')}bias") == shape[1:]
    }
    return {*biased} if any(rows != columns for rows, columns in biased.values()) else set()


def is_layer_in_block(name: str, shape: tuple[int, ...]) -> bool:
    """True for a matrix of `is_linear_layer` inside a numbered block."""
    return block_of(name) is not None and is_linear_layer(name, shape)
