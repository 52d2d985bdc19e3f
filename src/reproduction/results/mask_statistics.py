"""Mask densities by task and by tensor, and the overlap of pairs of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tallmasks.masks.mask_grids import MaskGrid, count_bits

LayerOf = Callable[[str], tuple[str, str]]


def statistics(
    bundle: MaskGrid, chosen: Mapping[str, float], multi_task_vector: NDArray[np.float32], layer_of: LayerOf
) -> dict[str, pd.DataFrame]:
    """Tables of the masks at each task's chosen lambda.

    Weights with a multi-task value of exactly 0 are counted separately or left out, because masks have no effect there.

    Args:
        chosen: mask_lambda by task, in table order.
        multi_task_vector: tau_MTL, float32 [P'].
        layer_of: tensor name -> (layer, kind); layers are "before", 0, 1, ..., d0, d1, ... (decoder), "after".

    Returns:
        ``density``: by task, the fraction of the P' weights in its mask, and the part of it with merged value 0.
        ``tensors``: by layer and kind, the fraction of weights in a mask, without merged zeros, averaged over tasks.
        ``overlap``: by pair of tasks, the Jaccard index of their masks without merged zeros; 1 if both are empty.
    """
    size = bundle.layout.size
    moved = np.packbits(multi_task_vector != 0, bitorder="little")
    masks = {task: bundle.packed_mask(task, value) for task, value in chosen.items()}
    used = {task: bits & moved for task, bits in masks.items()}
    density = [
        (task, chosen[task], count_bits(bits) / size, (count_bits(bits) - count_bits(used[task])) / size)
        for task, bits in masks.items()
    ]
    return {
        "density": pd.DataFrame(density, columns=["task", "mask_lambda", "density", "merged_zero"]),
        "tensors": _tensors(bundle, used, layer_of),
        "overlap": _overlap(used),
    }


def _tensors(bundle: MaskGrid, masks: Mapping[str, NDArray[np.uint8]], layer_of: LayerOf) -> pd.DataFrame:
    layout = bundle.layout
    held = np.zeros(len(layout.names))
    for bits in masks.values():
        mask = np.unpackbits(bits, count=layout.size, bitorder="little")
        held += np.add.reduceat(mask, layout.offsets, dtype=np.int64)
    rows = [(*layer_of(name), part.stop - part.start) for name, part in layout.parts.items()]
    table = pd.DataFrame(rows, columns=["layer", "kind", "weights"]).assign(held=held / len(masks))
    table = table.groupby(["layer", "kind"], as_index=False, sort=False).sum()
    table = table.sort_values("layer", key=lambda layers: layers.map(from_input_to_output), kind="stable")
    table["density"] = table["held"] / table["weights"]
    return table.drop(columns="held").reset_index(drop=True)


def _overlap(masks: Mapping[str, NDArray[np.uint8]]) -> pd.DataFrame:
    jaccard = {(task, task): 1.0 for task in masks}
    for one, other in combinations(masks, 2):
        both, either = count_bits(masks[one] & masks[other]), count_bits(masks[one] | masks[other])
        jaccard[one, other] = jaccard[other, one] = both / either if either else 1.0
    rows = [(one, other, jaccard[one, other]) for one in masks for other in masks]
    return pd.DataFrame(rows, columns=["task", "other", "jaccard"])


def from_input_to_output(layer: str) -> tuple[int, int]:
    """Sort key of layers."""
    if layer in ("before", "after"):
        return (0 if layer == "before" else 3), 0
    return (2 if layer.startswith("d") else 1), int(layer.removeprefix("d"))
