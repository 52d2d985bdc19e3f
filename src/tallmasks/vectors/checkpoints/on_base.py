"""Which tensors a task's model shares with its base, and which only one of them has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tallmasks.vectors.checkpoints.buffers import Buffer
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint


def task_only_tensors(base: Checkpoint, task: Checkpoint) -> tuple[str, ...]:
    """The task's tensors that the base lacks, ties, or has in another shape or kind (float or not); sorted. Masks and
    tables are not included, because the model class recomputes them."""
    constants = {name for name, kind in task.buffers.items() if kind is Buffer.CONSTANT}
    return tuple(name for name in sorted(task.tensors.keys() - constants) if not _fits(base, task, name))


def missing_tensors(base: Checkpoint, task: Checkpoint) -> tuple[str, ...]:
    """The base's tensors that the task's model lacks, except masks, tables and counters; sorted."""
    kinds = {name: base.buffers.get(name) for name in base.tensors.keys() - {*task.names}}
    return tuple(sorted(name for name, kind in kinds.items() if kind in (None, Buffer.AVERAGE)))


def _fits(base: Checkpoint, task: Checkpoint, name: str) -> bool:
    """Whether the base has the tensor in the task's shape and kind (float or not). Masks and tables always fit."""
    if name not in base.tensors:
        return False
    mine, theirs = base.tensors[name], task.tensors[name]
    is_alike = mine.shape == theirs.shape and mine.is_float == theirs.is_float
    return is_alike or base.buffers.get(name) is Buffer.CONSTANT


@dataclass(frozen=True, eq=False, kw_only=True)
class OnBase(Checkpoint):
    """A task's model with exactly the base's tensors; those in ``of_base`` come from the base."""

    task: Checkpoint
    base: Checkpoint
    of_base: frozenset[str]

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        return self._of(name).stored(name, start, stop)

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        return self._of(name).piece(name, start, stop)

    def difference(self, base: Checkpoint, name: str, start: int, stop: int) -> NDArray[np.float32]:
        return self._of(name).difference(base, name, start, stop)

    def roundoff(self, name: str) -> float:
        return self._of(name).roundoff(name)

    def same(self, base: Checkpoint, name: str, other: str | None = None) -> bool:
        return self._of(name).same(base, name, other)

    def _of(self, name: str) -> Checkpoint:
        return self.base if self.aliases.get(name, name) in self.of_base else self.task


def on_base(base: Checkpoint, task: Checkpoint, own: Collection[str], missing: Collection[str]) -> Checkpoint:
    if not own and not missing:
        return task
    of_base = {*own, *missing} & base.tensors.keys()
    tensors = {name: info for name, info in task.tensors.items() if name not in own}
    tensors |= {name: base.tensors[name] for name in of_base}
    attributes = {field.name: getattr(task, field.name) for field in fields(Checkpoint)}
    attributes |= {"tensors": dict(sorted(tensors.items())), "aliases": base.aliases}
    return OnBase(**attributes, task=task, base=base, of_base=frozenset(of_base))
