"""Mask agreement: how many tasks' masks keep each weight. Consensus masks are computed from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import new_flat, open_tensors
from tallmasks.masks.mask_grids import open_mask_grid
from tallmasks.vectors import kernels

FORMAT = "tallmasks/agreement/1"


@dataclass(frozen=True)
class AgreementProfile:
    """The mask agreement profile of T tasks."""

    fractions: tuple[float, ...]
    """For n = 0..T, the fraction of the P' weights that exactly n masks keep; they sum to 1."""
    merged_zero: tuple[float, ...]
    """The part of ``fractions`` with a multi-task value of exactly 0, where masks have no effect. There the rule
    |tau_t| > lambda |tau_t| selects every task that moved the weight; with TIES often all of them."""


def write_agreement(out: Path, mask_bundle: Path, chosen: Mapping[str, float], metadata: Mapping[str, str]) -> None:
    """Writes n(p), the number of tasks whose mask keeps weight p: uint8, flat. ``chosen``: mask_lambda by task, from
    the grid, for at most 255 tasks."""
    bundle = open_mask_grid(mask_bundle)
    with new_flat(out, bundle.layout, {**metadata, "format": FORMAT}, np.uint8) as new:
        planes = [bundle.planes(task) for task in bundle.tasks]
        kernels.count_agreement(planes, [bundle.index(chosen[task]) for task in bundle.tasks], new.flat)


def open_agreement(path: Path | str) -> NDArray[np.uint8]:
    """n(p), uint8 [P'], memory-mapped and read-only. Raises TallmasksError for any other file."""
    return open_tensors(path, FORMAT).flat(np.uint8)


def agreement_profile(
    agreement: NDArray[np.uint8], multi_task_vector: NDArray[np.float32], tasks: int
) -> AgreementProfile:
    """The agreement profile from n(p), uint8 [P'], for T ``tasks``."""
    counts = kernels.count_values(agreement, multi_task_vector)[:, : tasks + 1]
    every, zero = counts.sum(0) / agreement.size, counts[1] / agreement.size
    return AgreementProfile(tuple(every.tolist()), tuple(zero.tolist()))
