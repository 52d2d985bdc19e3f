"""The tensors of a bundle's files: what is written, and what is expected where one is read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tallmasks.bundles.manifest import BundledTensor, Manifest
from tallmasks.bundles.part_names import MERGED
from tallmasks.store.dtypes import DTYPES, OF_BUNDLES
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import TensorSpec

SCALE = ".scale"
"""What an int8 tensor's scales are called, behind its name."""
Specs = dict[str, TensorSpec]


def merged_specs(dtype: str, stored: Mapping[str, BundledTensor]) -> Specs:
    """The tensors of merged.safetensors.

    Raises TallmasksError where a tensor is called like another one's scales.
    """
    code = OF_BUNDLES[dtype]
    specs = {name: TensorSpec(DTYPES[code].numpy, tensor.shape, code == "BF16") for name, tensor in stored.items()}
    if code == "I8":
        for name, tensor in stored.items():
            if name + SCALE in stored:
                raise TallmasksError(
                    f"tensor {name + SCALE} is called as int8 calls the scales of {name}; choose another dtype."
                )
            specs[name + SCALE] = TensorSpec(np.dtype("<f4"), (tensor.rows,))
    return specs


def task_specs(manifest: Manifest) -> Specs:
    """The tensors of every task's file: its mask of each stored tensor, or what the codings store of its own.

    Raises TallmasksError where a tensor is called like a part of another one.
    """
    if not manifest.codings:
        stored = manifest.stored.items()
        return {name: TensorSpec(np.dtype(np.uint8), (-(-tensor.size // 8),)) for name, tensor in stored}
    specs: Specs = {}
    for name, coding in manifest.codings.items():
        for ending, spec in coding.specs.items():
            if name + ending in specs or (ending and name + ending in manifest.codings):
                raise TallmasksError(
                    f"tensor {name + ending} is called as what is stored of {name}; rename one of them."
                )
            specs[name + ending] = spec
    return specs


def file_specs(manifest: Manifest) -> dict[str, Specs]:
    """The tensors of every file but the base's. Raises TallmasksError as the others."""
    files = {} if manifest.codings else {MERGED: merged_specs(manifest.dtype, manifest.stored)}
    of_task = task_specs(manifest)
    return files | dict.fromkeys(manifest.task_files.values(), of_task)


def said_of(manifest: Manifest, task: str | None = None) -> dict[str, str]:
    """What the file of tau_MTL, or of a task, says of itself."""
    part = "update" if manifest.codings else "masks"
    return {"format": manifest.format} | ({"part": "merged"} if task is None else {"part": part, "task": task})
