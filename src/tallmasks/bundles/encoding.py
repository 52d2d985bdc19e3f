"""Encodes tau_MTL: float32, bfloat16, float16, or int8 with a float32 scale per row."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import SCALE
from tallmasks.bundles.manifest import Manifest
from tallmasks.io.dtypes import OF_BUNDLES
from tallmasks.io.tensor_files import Layout, NewTensors
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.float_bytes import narrowed

_ENCODED = 1 << 21
"""Values that a thread encodes at once."""


@dataclass(frozen=True)
class Merged:
    """merged.safetensors being written; ``scratch`` holds int8 tensors as float32 until their rows are complete."""

    dtype: str
    new: NewTensors
    scratch: Mapping[str, NDArray[np.float32]]

    def write(self, name: str, start: int, values: NDArray[np.float32]) -> None:
        """Writes values of one flattened tensor from ``start`` on. Raises TallmasksError, naming the tensor, for NaN,
        infinity or a value too large for the dtype."""
        code = "F32" if self.dtype == "int8" else OF_BUNDLES[self.dtype]
        whole = (self.scratch or self.new.tensors)[name].reshape(-1)
        part = whole[start : start + values.size].view(np.uint8)
        part[...] = narrowed(values, code, f"tensor {name} of the merged vector")

    def finish(self) -> None:
        """Quantises the int8 tensors, whose rows are complete now."""

        def encode_rows(job: tuple[str, int, slice]) -> None:
            name, row, rows = job
            part = slice(rows.start * row, rows.stop * row)
            values, levels = self.scratch[name].reshape(-1)[part], self.new.tensors[name].reshape(-1)[part]
            quantise_rows(values, row, self.new.tensors[name + SCALE][rows], levels)

        jobs: list[tuple[str, int, slice]] = []
        for name, values in self.scratch.items():
            count = self.new.tensors[name + SCALE].size
            row = values.size // max(count, 1)
            step = max(_ENCODED // max(row, 1), 1)
            jobs += [(name, row, slice(first, min(first + step, count))) for first in range(0, count, step)]
        parallel(encode_rows, jobs)


@contextmanager
def scratch_for(folder: Path, draft: Manifest) -> Iterator[dict[str, NDArray[np.float32]]]:
    """Temporary float32 storage on disk for all values, if the bundle is int8; otherwise empty."""
    layout = Layout(tuple(draft.stored), tuple(tensor.shape for tensor in draft.stored.values()))
    if draft.dtype != "int8":
        yield {}
        return
    with TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, 4 * (layout.size + 1))  # an empty file cannot be mapped
        yield layout.split(np.asarray(np.memmap(file, np.float32, mode="r+")))


def quantise_rows(values: NDArray[np.float32], row: int, scales: NDArray[np.float32], out: NDArray[np.int8]) -> None:
    """float32 [rows * row] -> scales float32 [rows], max |value| / 127, and int8 value / scale, rounded to nearest.
    Ties round to even, in float32 arithmetic; a row whose scale is 0 becomes zeros."""
    lines = values.reshape(len(scales), row)
    scales[:] = np.abs(lines).max(axis=1, initial=0) / np.float32(127)
    nearest = np.rint(lines / np.where(scales == 0, np.float32(1), scales)[:, None])
    nearest[scales == 0] = 0
    out[:] = nearest.clip(-127, 127).reshape(-1)
