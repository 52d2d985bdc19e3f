"""What every task changed, many tasks at once: of models that lie in memory as values of one dtype, as most do."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.dtypes import FLOATS
from tallmasks.store.tensor_files import Layout
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.float_bytes import differences
from tallmasks.vectors.differences import Lying


class TaskDifferences:
    """theta_t - theta_0 of T models of one base, which it keeps open.

    A call of Python's for each model would hold up all threads for about as long as its values take.

    Args:
        base: theta_0.
        tasks: every theta_t.
    """

    def __init__(self, base: Checkpoint, tasks: Iterable[Checkpoint]) -> None:
        self._base, self._tasks = base, tuple(tasks)
        self._known: dict[str, tuple[str, NDArray[np.uint64]] | None] = {}

    def __call__(self, name: str, start: int, stop: int) -> tuple[NDArray[np.float32], int] | None:
        """Values start..stop of a flattened tensor, float32 [T, stop - start], and the number of the first model with
        NaN or infinity there, or T; None where each has to be asked for by itself (`Checkpoint.difference`)."""
        if name not in self._known:
            self._known[name] = self._beginnings(name)
        known = self._known[name]
        if known is None:
            return None
        dtype, beginnings = known
        return differences(beginnings + np.uint64(start * FLOATS[dtype]), dtype, stop - start)

    def lying(self, layout: Layout, told: Callable[[int], None]) -> list[Lying | None]:
        """Where each model's tensors of a layout lie beside the base's; None for one that has to be asked.

        ``told``: how many values are read.
        """
        return [self._lying(task, layout, told) for task in self._tasks]

    def _lying(self, task: Checkpoint, layout: Layout, told: Callable[[int], None]) -> Lying | None:
        dtypes = {model.info(name).dtype for model in (self._base, task) for name in layout.names}
        after, before = ([model.address(name) for name in layout.names] for model in (task, self._base))
        if len(dtypes) > 1 or "F64" in dtypes or None in after or None in before:
            return None
        return Lying(dtypes.pop(), np.array(after, np.uint64), np.array(before, np.uint64), told)

    def _beginnings(self, name: str) -> tuple[str, NDArray[np.uint64]] | None:
        models = (self._base, *self._tasks)
        dtypes = {model.info(name).dtype for model in models}
        found = [model.address(name) for model in models]
        if len(dtypes) > 1 or "F64" in dtypes or None in found:
            return None
        return dtypes.pop(), np.array(found, np.uint64)
