"""tau_MTL as stored in a bundle: encoding, decoding, and the masked sum with theta_0, on the CPU.

A task's update is ``scale * tau`` where its bit is set and +0.0 elsewhere, whatever the signs of scale and tau. Weights
are ``round(float32(theta_0) + update)``, so a theta_0 of -0.0 whose bit is 0 becomes +0.0 (IEEE 754).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.manifest import Manifest
from tallmasks.io.dtypes import FLOATS, OF_BUNDLES
from tallmasks.io.tensor_files import Layout, NewTensors
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.float_bytes import narrowed, widened
from tallmasks.vectors.kernels import read_only

PIECE = 1 << 20
"""Values that a thread processes at once; a multiple of 8."""
SCALE = ".scale"
"""Suffix of the tensor that holds an int8 tensor's scales."""
_NO_ROWS = np.ones(1, np.float32)

Raw = NDArray[np.uint8]


class PackedTau(NamedTuple):
    """A flattened tensor: F32, BF16, F16, or I8 with one scale per ``row`` values."""

    raw: Raw
    dtype: str
    row_scales: NDArray[np.float32] = _NO_ROWS
    row: int = 1

    def piece(self, start: int, stop: int) -> NDArray[np.float32]:
        if self.dtype != "I8":
            width = FLOATS[self.dtype]
            return widened(self.raw[start * width : stop * width], self.dtype)
        first, last = start // self.row, -(-stop // self.row)
        scales = np.repeat(self.row_scales[first:last], self.row)[start - first * self.row :][: stop - start]
        return self.raw[start:stop].view(np.int8) * scales

    def add(self, theta: NDArray, start: int, bits: Raw, scale: float, out: NDArray[np.float32]) -> None:
        """Writes theta + update to ``out``, float32 [n], from value ``start`` (a multiple of 8) of the tensor on.
        ``bits``: the mask of the whole tensor, uint8 [ceil(P / 8)]."""
        from tallmasks.vectors import loops  # imports numba

        stop, words = start + out.size, np.zeros(-(-out.size // 32), np.uint32)
        words.view(np.uint8)[: -(-out.size // 8)] = bits[start // 8 : -(-stop // 8)]
        half = self.dtype == "BF16"
        tau = self.raw[2 * start : 2 * stop].view(np.uint16) if half else self.piece(start, stop).view(np.int32)
        loops.add_masked(read_only(theta), read_only(tau), 16 * half, words, np.float32(scale), out)


def pieces(size: int) -> list[tuple[int, int]]:
    """Start and stop of every piece of a tensor."""
    return [(start, min(start + PIECE, size)) for start in range(0, size, PIECE)]


@dataclass(frozen=True)
class Merged:
    """merged.safetensors being written. For int8, ``scratch`` holds the values as float32 until all are known."""

    dtype: str
    new: NewTensors
    scratch: Mapping[str, NDArray[np.float32]]

    def write(self, name: str, start: int, values: NDArray[np.float32]) -> None:
        """Writes values of one flattened tensor from ``start`` on. Raises TallmasksError, naming the tensor, for NaN,
        infinity or a value too large for the dtype."""
        code = "F32" if self.dtype == "int8" else OF_BUNDLES[self.dtype]
        part = (self.scratch or self.new.tensors)[name].reshape(-1)[start : start + values.size]
        part.view(np.uint8)[...] = narrowed(values, code, f"tensor {name} of the merged vector")

    def finish(self) -> None:
        """Quantises int8 tensors from the scratch values."""
        jobs = []
        for name, values in self.scratch.items():
            scales = self.new.tensors[name + SCALE]
            shape = scales.size, values.size // max(scales.size, 1)
            rows, levels = values.reshape(shape), self.new.tensors[name].reshape(shape)
            step = max(2 * PIECE // max(shape[1], 1), 1)
            parts = [slice(first, first + step) for first in range(0, scales.size, step)]
            jobs += [(rows[part], scales[part], levels[part]) for part in parts]
        parallel(lambda job: quantise_rows(*job), jobs)


@contextmanager
def scratch_for(folder: Path, draft: Manifest) -> Iterator[dict[str, NDArray[np.float32]]]:
    """Temporary float32 storage on disk for all values, if the bundle is int8; otherwise empty."""
    if draft.dtype != "int8":
        yield {}
        return
    layout = Layout(tuple(draft.stored), tuple(tensor.shape for tensor in draft.stored.values()))
    with TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, 4 * (layout.size + 1))  # an empty file cannot be mapped
        yield layout.split(np.asarray(np.memmap(file, np.float32, mode="r+")))


def quantise_rows(rows: NDArray[np.float32], scales: NDArray[np.float32], out: NDArray[np.int8]) -> None:
    """float32 [rows, n] -> scales float32 [rows], max |value| / 127, and int8 value / scale, rounded to nearest. Ties
    round to even, in float32 arithmetic; a row whose scale is 0 becomes zeros."""
    scales[:] = np.abs(rows).max(axis=1, initial=0) / np.float32(127)
    nearest = np.rint(rows / np.where(scales == 0, np.float32(1), scales)[:, None])
    nearest[scales == 0] = 0
    out[:] = nearest.clip(-127, 127)
