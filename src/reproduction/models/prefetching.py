"""Prepares batches in a thread while a GPU computes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def prefetched(batches: Iterator[T], device: torch.device) -> Iterator[T]:
    """The same batches.  For a GPU, a thread prepares the next batch in advance."""
    if device.type == "cpu":
        yield from batches
        return
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch
