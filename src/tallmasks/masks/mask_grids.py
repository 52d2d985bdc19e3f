"""TALL-masks: every task's masks for a grid of mask lambdas, in one safetensors file.

The *level* of a weight is the number of grid lambdas whose mask keeps it; masks are nested, so the mask of the j-th
lambda of the ascending grid is ``level > j``. Each task's tensor, uint8 [B, ceil(P' / 8)], holds the bit planes of its
levels: bit i (lowest first) of byte j of plane b is bit b of the level of weight 8 j + i of the flat layout. B is the
bit length of the number of lambdas; padding bits are 0. Metadata: ``format``; ``tasks`` and ``lambdas``, JSON lists;
``layout``, a JSON object of shapes by tensor name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import Layout, TensorFile, TensorInfo, new_tensors, open_tensors
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import open_multi_task_vector, open_task_vector

FORMAT = "tallmasks/mask_bundle/1"


@dataclass(frozen=True)
class MaskGrid:
    """An open mask bundle; each task's masks are read only when needed."""

    tensors: TensorFile

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        return tuple(json.loads(self.tensors.metadata["tasks"]))

    @cached_property
    def mask_lambdas(self) -> tuple[float, ...]:
        return tuple(json.loads(self.tensors.metadata["lambdas"]))

    @cached_property
    def layout(self) -> Layout:
        return Layout.from_json(self.tensors.metadata["layout"])

    def packed_mask(self, task: str, mask_lambda: float) -> NDArray[np.uint8]:
        """m_t(lambda) as bits, uint8 [ceil(P' / 8)]. Raises TallmasksError for an unknown task, ValueError for an
        unknown lambda."""
        return kernels.packed_mask(self.planes(task), self.index(mask_lambda))

    def packed_piece(self, task: str, mask_lambda: float, start: int, stop: int) -> NDArray[np.uint8]:
        """m_t(lambda) of weights start..stop, repacked: uint8 [ceil((stop - start) / 8)], bit i of byte j is weight
        start + 8 j + i. Padding bits are undefined. Raises like :meth:`packed_mask`."""
        shift = start % 8
        planes = self.planes(task)[:, start // 8 : -(-stop // 8)]
        bits = kernels.packed_mask(planes, self.index(mask_lambda))
        if shift:
            bits = bits >> np.uint8(shift) | np.append(bits[1:], np.uint8(0)) << np.uint8(8 - shift)
        return bits[: -(-(stop - start) // 8)]

    def planes(self, task: str) -> NDArray[np.uint8]:
        """The bit planes of a task's levels, uint8 [B, ceil(P' / 8)], memory-mapped and read-only."""
        return self.tensors.view(task)

    def index(self, mask_lambda: float) -> int:
        """The position of a lambda in the grid. Raises ValueError if it is not in the grid."""
        return self.mask_lambdas.index(mask_lambda)

    def density(self, task: str, mask_lambda: float) -> float:
        """The fraction of the P' weights that m_t(lambda) keeps. Raises like :meth:`packed_mask`."""
        return count_bits(self.packed_mask(task, mask_lambda)) / self.layout.size


def count_bits(bits: NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(bits).sum(dtype=np.int64))


def open_mask_grid(path: Path | str) -> MaskGrid:
    """Opens a file of :func:`write_mask_grid`. Raises TallmasksError for any other file."""
    return MaskGrid(open_tensors(path, FORMAT))


def write_mask_grid(
    path: Path,
    task_vectors: Mapping[str, Path],
    multi_task_vector: Path,
    mask_lambdas: Sequence[float],
    metadata: Mapping[str, str],
) -> None:
    """Writes every task's masks for the whole grid in one pass over the untrimmed task vectors, all of one model.
    ``mask_lambdas``: the grid, ascending."""
    vectors, merged = list(map(open_task_vector, task_vectors.values())), open_multi_task_vector(multi_task_vector)
    layout = vectors[0].layout
    shape = (len(mask_lambdas).bit_length(), -(-layout.size // 8))
    described = {
        "format": FORMAT,
        "tasks": json.dumps(list(task_vectors)),
        "lambdas": json.dumps(list(mask_lambdas)),
        "layout": layout.to_json(),
    }
    infos = dict.fromkeys(task_vectors, TensorInfo("U8", shape))
    with new_tensors(path, infos, {**metadata, **described}) as new:
        planes = [new.tensors[task] for task in task_vectors]
        kernels.pack_levels([vector.flat for vector in vectors], merged, mask_lambdas, planes)


def apply_mask(multi_task_vector: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The update m_t * tau_MTL of one task, float32 [P']."""
    return multi_task_vector * mask
