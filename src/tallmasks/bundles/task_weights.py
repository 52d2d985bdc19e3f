"""One model of a bundle, piece by piece: theta_0, or theta_0 and the update of a task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.packed_tau import Raw, pieces
from tallmasks.store.dtypes import DTYPES
from tallmasks.store.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.float_bytes import converted, rounded


@dataclass(frozen=True)
class TaskWeights:
    """The weights of ``task`` over theta_0, those of theta_0 itself where it is None."""

    parts: BundleParts
    base: Checkpoint
    task: str | None

    def fill(self, rows: Iterable[tuple[str, str, Raw]]) -> None:
        """Whole tensors of the bundle into rows of bytes, each with its name and the dtype to be rounded to."""

        def fill(job: tuple[str, str, Raw, int, int]) -> None:
            name, dtype, row, start, stop = job
            width = DTYPES[dtype].width
            out = row[start * width : stop * width]
            if self.task is None or name not in self.parts.manifest.stored:
                out[...] = converted(self.constant(name, start, stop), self.base.tensors[name].dtype, dtype)
                return
            values = out.view(np.float32) if dtype == "F32" else np.empty(stop - start, np.float32)
            self.parts.add(self.base.piece(name, start, stop), self.task, name, start, values)
            if dtype != "F32":
                out[...] = rounded(values, dtype)

        parallel(fill, [(*row, *piece) for row in rows for piece in pieces(row[2].size // DTYPES[row[1]].width)])

    def constant(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of values of a tensor without an update, in the dtype that the base has it in."""
        if self.task is None or name not in self.parts.manifest.buffers:
            return self.base.stored(name, start, stop)
        own = self.parts.buffer(self.task, name, start, stop)
        return converted(own, self.parts.manifest.tensors[name].dtype, self.base.tensors[name].dtype)

    def raw(self, names: Iterable[str]) -> dict[str, NDArray[np.uint8]]:
        """Tensors of the model in the base's dtype as fresh bytes, flattened; those that are no floats too."""
        raws, of_bundle = {}, self.parts.manifest.tensors
        for name in sorted(names):
            info = self.base.tensors[name]
            if name in of_bundle:
                raws[name] = np.empty(info.size * DTYPES[info.dtype].width, np.uint8)
            else:
                raws[name] = np.array(self.base.stored(name, 0, info.size))
        self.fill((name, of_bundle[name].dtype, raw) for name, raw in raws.items() if name in of_bundle)
        return raws
