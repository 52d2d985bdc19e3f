"""One model of a bundle, piece by piece: theta_0, or theta_0 and the update of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.update_kernels import CODES, PackedValues, add_update, convert, in_parallel, pieces
from tallmasks.store.dtypes import FLOATS
from tallmasks.vectors.checkpoints.checkpoint import TensorInfo


class Values(Protocol):
    """theta_0's values: an open checkpoint's, or those that a module had."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...
    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]: ...
    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]: ...


@dataclass(frozen=True)
class TaskWeights:
    """The weights of ``task`` over theta_0, those of theta_0 itself where it is None."""

    parts: BundleParts
    base: Values
    task: str | None

    def check(self) -> None:
        """Open and check all that will be read. Raises TallmasksError where a file is not the bundle's."""
        if self.task is not None:
            self.parts.check(self.task)

    def fill(self, name: str, start: int, stop: int, out: PackedValues) -> None:
        """Values start..stop (start a multiple of 8) of a flattened tensor of floats into ``out``, in its dtype."""
        if self.task is None or name not in self.parts.manifest.stored:
            self._fill_base(name, start, stop, out)
            return
        update = self.parts.packed(self.task, name, start, stop)
        if out.dtype in CODES:
            add_update(self._theta(name, start, stop), *update, out)
        else:
            sums = np.empty(stop - start, np.float32)
            total = PackedValues(sums.view(np.uint8), "F32")
            add_update(self._theta(name, start, stop), *update, total)
            out.raw.view(np.float64)[:] = sums

    def raw(self) -> dict[str, NDArray[np.uint8]]:
        """Every tensor of the model in the base's dtype as fresh bytes, flattened; those that are no floats too."""
        tensors = self.parts.manifest.tensors
        raws = {name: np.empty(tensor.size * FLOATS[tensor.dtype], np.uint8) for name, tensor in tensors.items()}

        def fill(job: tuple[str, int, int]) -> None:
            name, start, stop = job
            size, dtype = FLOATS[tensors[name].dtype], tensors[name].dtype
            self.fill(name, start, stop, PackedValues(raws[name][start * size : stop * size], dtype))

        in_parallel(fill, [(name, *piece) for name, tensor in tensors.items() for piece in pieces(tensor.size)])
        for name, form in self.base.tensors.items():
            if name not in raws:
                size = int(np.prod(form.shape, dtype=np.int64))
                raws[name] = np.array(self.base.stored(name, 0, size))
        return {name: raws[name] for name in sorted(raws)}

    def _fill_base(self, name: str, start: int, stop: int, out: PackedValues) -> None:
        dtype = self.base.tensors[name].dtype
        if dtype == out.dtype:
            np.copyto(out.raw, self.base.stored(name, start, stop))
        elif out.dtype in CODES:
            convert(self._theta(name, start, stop), out)
        else:
            out.raw.view(np.float64)[:] = self.base.piece(name, start, stop)

    def _theta(self, name: str, start: int, stop: int) -> PackedValues:
        dtype = self.base.tensors[name].dtype
        if dtype in CODES:
            return PackedValues(self.base.stored(name, start, stop), dtype)
        return PackedValues(np.ascontiguousarray(self.base.piece(name, start, stop)).view(np.uint8), "F32")
