"""How tau_MTL is stored: float32, bfloat16, float16, or int8 with a float32 scale for each row."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.manifest import BundledTensor
from tallmasks.bundles.part_forms import SCALE, merged_specs
from tallmasks.bundles.part_names import MERGED
from tallmasks.bundles.update_kernels import PackedValues, quantise_rows, store
from tallmasks.store.dtypes import OF_BUNDLES
from tallmasks.store.errors import TallmasksError
from tallmasks.store.parallel import parallel
from tallmasks.store.tensor_files import Layout, NewTensors, new_tensors
from tallmasks.vectors import kernels
from tallmasks.vectors.checkpoints.float_bytes import TOO_LARGE

_ENCODED = 1 << 21
"""How many values a thread encodes at once."""


def scratch_bytes(dtype: str, stored: Mapping[str, BundledTensor]) -> int:
    """What the encoding takes on the disk for a time: all values as float32, from which int8 finds its scales."""
    return 4 * sum(tensor.size for tensor in stored.values()) if dtype == "int8" else 0


@dataclass(frozen=True)
class Encoder:
    """merged.safetensors in the making; pieces may come from any thread."""

    dtype: str
    stored: Mapping[str, BundledTensor]
    new: NewTensors
    scratch: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    def write(self, name: str, start: int, values: NDArray[np.float32]) -> None:
        """Values from ``start`` on of one flattened tensor.

        Raises TallmasksError, naming the tensor, for NaN, infinity or a value too large for the dtype.
        """
        largest = float(kernels.largest_magnitude(values))
        if not np.isfinite(largest):
            raise TallmasksError(
                f"tensor {name} of the merged vector holds NaN or infinity; expected finite numbers. A checkpoint is"
                " damaged or its training diverged: leave it out."
            )
        if largest >= TOO_LARGE.get(OF_BUNDLES[self.dtype], np.inf):
            raise TallmasksError(
                f"tensor {name} of the merged vector holds a value of magnitude {largest:g}, too large for"
                f" {self.dtype}; choose float32, bfloat16 or int8."
            )
        target = self.scratch[name] if self.dtype == "int8" else self.new.tensors[name]
        part = target.reshape(-1)[start : start + values.size]
        if self.dtype == "int8":
            part[...] = values
        else:
            store(values, PackedValues(part.view(np.uint8), OF_BUNDLES[self.dtype]))

    def finish(self) -> None:
        """Encode what had to wait for whole rows."""

        def encode(job: tuple[str, int, int]) -> None:
            name, first, last = job
            row = self.scratch[name].size // max(self.stored[name].rows, 1)
            part = slice(first * row, last * row)
            levels = self.new.tensors[name].reshape(-1)
            scales = self.new.tensors[name + SCALE]
            quantise_rows(self.scratch[name][part], row, scales[first:last], levels[part])

        jobs = []
        for name in self.scratch:
            rows = self.stored[name].rows
            step = max(_ENCODED * rows // max(self.scratch[name].size, 1), 1)
            jobs += [(name, first, min(first + step, rows)) for first in range(0, rows, step)]
        parallel(encode, jobs)


@contextmanager
def new_merged(
    folder: Path, dtype: str, stored: Mapping[str, BundledTensor], metadata: Mapping[str, str]
) -> Iterator[Encoder]:
    """Write merged.safetensors in a folder; see :func:`tallmasks.store.tensor_files.new_tensors` for errors."""
    layout = Layout(tuple(stored), tuple(tensor.shape for tensor in stored.values()))
    with new_tensors(folder / MERGED, merged_specs(dtype, stored), metadata) as new:
        if not scratch_bytes(dtype, stored):
            yield Encoder(dtype, stored, new, {name: np.empty(0, np.float32) for name in stored if dtype == "int8"})
            return
        with TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, 4 * layout.size)
            flat = np.asarray(np.memmap(file, np.float32, mode="r+", shape=(layout.size,)))
            yield (encoder := Encoder(dtype, stored, new, {n: a.reshape(-1) for n, a in layout.split(flat).items()}))
            encoder.finish()
