"""Reads one model of a bundle in pieces: theta_0, or theta_0 plus a task's update."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.manifest import TaskModel
from tallmasks.io.dtypes import nbytes_of
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.float_bytes import converted
from tallmasks.vectors.multiples import PIECE, piece, pieces


@dataclass(frozen=True)
class TaskWeights:
    """The weights of a task's model, or of theta_0 if ``task`` is None. ``keep``: decoded updates stay in memory."""

    parts: BundleParts
    base: Checkpoint
    task: str | None
    keep: bool = False

    @cached_property
    def tensors(self) -> dict[str, TensorInfo]:
        """The model's tensors under the names of the base's files; sorted."""
        own, missing = self._model.own, {*self._model.missing}
        kept = {name: info for name, info in self.base.tensors.items() if name not in missing}
        return dict(sorted((kept | {name: TensorInfo(one.dtype, one.shape) for name, one in own.items()}).items()))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Main names of tied tensors, by alias."""
        aliases = self.parts.manifest.aliases.items()
        return {alias: name for alias, name in aliases if name in self.tensors and alias not in self.tensors}

    def fill(self, rows: Iterable[tuple[str, str, NDArray[np.uint8]]]) -> None:
        """Fills byte arrays with whole tensors. ``rows``: (name, dtype, bytes to fill). Updated weights are rounded to
        the base's dtype first."""

        def fill(job: tuple[str, str, NDArray[np.uint8], int, int]) -> None:
            name, dtype, row, start, stop = job
            out = row[nbytes_of(dtype, start) : nbytes_of(dtype, stop)]
            if not self.is_updated(name):
                out[...] = converted(self.constant(name, start, stop), self.tensors[name].dtype, dtype)
            elif (own := self.parts.manifest.tensors[name].dtype) == dtype:
                self.write_updated(name, start // PIECE, out)
            else:
                values = np.empty(nbytes_of(own, stop - start), np.uint8)
                self.write_updated(name, start // PIECE, values)
                out[...] = converted(values, own, dtype)

        parallel(fill, [(*row, *piece) for row in rows for piece in pieces(self.tensors[row[0]].size)])

    def write_updated(self, name: str, number: int, out: NDArray[np.uint8]) -> None:
        """Writes the bytes of a piece of an updated tensor, in the dtype of the bundle's base."""
        info, dtype = self.base.tensors[name], self.parts.manifest.tensors[name].dtype
        start, stop = piece(info.size, number)
        update = (self.parts.cached_update if self.keep else self.parts.update)(str(self.task), name, number, self.base)
        update.apply(converted(self.base.raw_bytes(name, start, stop), info.dtype, dtype), dtype, out)

    def is_updated(self, name: str) -> bool:
        return self.task is not None and name in self.parts.manifest.encoded and name not in self._model.own

    def is_of_base(self, name: str) -> bool:
        """For a tensor without an update: True if it is theta_0's, False if it is the task's own."""
        return self.task is None or not (name in self._model.own or name in self.parts.manifest.buffers)

    def constant(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """Bytes of values start..stop of a tensor without an update, in its dtype in `tensors`."""
        if self.task is not None and name in self._model.own:
            return self.parts.own(self.task, name, start, stop)
        if self.is_of_base(name):
            return self.base.raw_bytes(name, start, stop)
        own = self.parts.buffer(str(self.task), name, start, stop)
        return converted(own, self.parts.manifest.tensors[name].dtype, self.base.tensors[name].dtype)

    def raw(self, names: Iterable[str]) -> dict[str, NDArray[np.uint8]]:
        """Newly allocated bytes of flattened tensors, float or not."""
        raws, rows = {}, []
        for name in sorted(names):
            info = self.tensors[name]
            if name in self.parts.manifest.tensors or name in self._model.own:
                raws[name] = np.empty(info.nbytes, np.uint8)
                rows.append((name, info.dtype, raws[name]))
            else:
                raws[name] = np.array(self.base.raw_bytes(name, 0, info.size))
        self.fill(rows)
        return raws

    @cached_property
    def _model(self) -> TaskModel:
        return TaskModel() if self.task is None else self.parts.manifest.model(self.task)
