"""The matrices of a model that are compressed for what they are, layers, and not tables that are looked up."""

from __future__ import annotations

from tallmasks.methods.rows.parts.block_numbers import block_of, is_linear_layer
from tallmasks.methods.rows.parts.singular_vectors import is_matrix


def is_layer_in_block(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is the matrix of a linear layer of attention or MLP: in a numbered block, and no table, head or
    projection by its name."""
    return block_of(name) is not None and is_matrix(shape) and is_linear_layer(name, len(shape))
