"""The order in which a training sees its examples."""

from __future__ import annotations

from collections.abc import Iterator

import torch


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
