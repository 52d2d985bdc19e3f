"""The order of the examples of a training."""

from collections.abc import Iterator

import torch


class ShuffledBatches(Iterator[torch.Tensor]):
    """An endless iterator over batches of indices, int64 [batch size]. Every epoch is a new permutation.

    ``waiting``: the rest of the current permutation, int64.
    """

    def __init__(self, count: int, batch_size: int, generator: torch.Generator) -> None:
        self._count, self._batch_size, self._generator = count, batch_size, generator
        self.waiting = torch.empty(0, dtype=torch.int64)

    def __next__(self) -> torch.Tensor:
        while len(self.waiting) < self._batch_size:
            self.waiting = torch.cat([self.waiting, torch.randperm(self._count, generator=self._generator)])
        batch, self.waiting = self.waiting[: self._batch_size], self.waiting[self._batch_size :]
        return batch
