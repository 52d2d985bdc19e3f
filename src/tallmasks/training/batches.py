"""The order in which a training sees its examples, and their preparation beside the computation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


class ShuffledBatches(Iterator[torch.Tensor]):
    """Indices of full batches, int64 [batch size], without end: every example once before any comes again.

    Attributes:
        waiting: The indices that come next, int64.
    """

    def __init__(self, count: int, batch_size: int, generator: torch.Generator) -> None:
        self._count, self._batch_size, self._generator = count, batch_size, generator
        self.waiting = torch.empty(0, dtype=torch.int64)

    def __next__(self) -> torch.Tensor:
        while len(self.waiting) < self._batch_size:
            self.waiting = torch.cat([self.waiting, torch.randperm(self._count, generator=self._generator)])
        batch, self.waiting = self.waiting[: self._batch_size], self.waiting[self._batch_size :]
        return batch


def ahead(batches: Iterator[T], device: torch.device) -> Iterator[T]:
    """The same batches.  For a GPU a thread prepares the next one while the last one is used."""
    if device.type == "cpu":
        yield from batches
        return
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch
