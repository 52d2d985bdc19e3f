"""Figure 1 from real weights: task vectors, masks and consensus of one block of a matrix."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tallmasks.masks.mask_grids import apply_mask
from tallmasks.methods.rows.masks_over_merges import keep_agreed
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

SIDE = 16
"""The block has at most SIDE rows and columns."""
K = 2
"""The consensus threshold."""


def illustrated_block(vectors: Mapping[str, TaskVector], mask_lambda: float) -> pd.DataFrame:
    """Task vectors, masks and the masked sum for the first block of the largest matrix.

    One row per weight: ``row`` ("vector", "mask", "masked"), ``block`` (a task or "merged"), ``y``, ``x``, ``value``.
    """
    layout = next(iter(vectors.values())).layout
    matrices = [name for name, shape in zip(layout.names, layout.shapes, strict=True) if len(shape) == 2]
    largest = max(matrices, key=lambda name: np.prod(layout.shapes[layout.names.index(name)]))
    parts = {task: _first_weights(layout.split(vector.flat)[largest]) for task, vector in vectors.items()}
    shape = next(iter(parts.values())).shape
    flats = [part.reshape(-1) for part in parts.values()]
    merged = functools.reduce(np.add, flats)
    packed = kernels.pack_masks(flats, merged, [mask_lambda] * len(flats))
    masks = [np.unpackbits(bits, count=merged.size, bitorder="little").astype(bool) for bits in packed]
    agreement = np.asarray(np.sum(masks, axis=0), np.uint8)
    blocks = {
        **{("vector", task): flat for task, flat in zip(parts, flats, strict=True)},
        ("vector", "merged"): merged,
        **{("mask", task): mask for task, mask in zip(parts, masks, strict=True)},
        ("mask", "merged"): agreement >= K,
        **{("masked", task): apply_mask(merged, mask) for task, mask in zip(parts, masks, strict=True)},
        ("masked", "merged"): keep_agreed(merged, agreement, k=K),
    }
    y, x = (part.reshape(-1) for part in np.indices(shape))
    return pd.concat(
        pd.DataFrame({"row": row, "block": name, "y": y, "x": x, "value": values.astype(np.float32)})
        for (row, name), values in blocks.items()
    )


def _first_weights(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """The first block, at most [SIDE, SIDE].  A single row or column, as in (IA)^3, is wrapped into rows of SIDE."""
    if 1 in matrix.shape and matrix.size >= SIDE:
        rows = min(SIDE, matrix.size // SIDE)
        return matrix.reshape(-1)[: rows * SIDE].reshape(rows, SIDE).copy()
    return np.ascontiguousarray(matrix[:SIDE, :SIDE])
