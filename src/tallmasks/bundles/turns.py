"""Threads that take turns with one live module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from tallmasks.store.errors import TallmasksError

if TYPE_CHECKING:
    import torch


class Turns:
    """The lock of a bundle's module, and the task that the module holds.

    Attributes:
        lock: held by whoever writes the module or reads it in a block.
        task: the task of the last block, or None.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self.task: str | None = None
        self._state: list[tuple[int, int, int]] | None = None
        self._in_block = False

    @contextmanager
    def block(
        self, module: torch.nn.Module, task: str, write: Callable[[torch.nn.Module, str], None]
    ) -> Iterator[None]:
        """Hold the lock and have the module written, if it does not hold the task already.

        Raises TallmasksError where this thread is in a block already, and what ``write`` raises.
        """
        with self.lock:
            if self._in_block:
                raise TallmasksError(f"switched(..., {task!r}) stands in another block of its bundle; end that first.")
            state = _state_of(module)
            if state is None or (self.task, self._state) != (task, state):
                write(module, task)
                self.task, self._state = task, _state_of(module)
            self._in_block = True
            try:
                yield
            finally:
                self._in_block = False


def _state_of(module: torch.nn.Module) -> list[tuple[int, int, int]] | None:
    """Changes where torch changes or replaces a tensor of a module; None where torch does not count the changes."""
    tensors = [*module.parameters(), *module.buffers()]
    if any(tensor.is_inference() for tensor in tensors):
        return None
    return [(id(tensor), tensor.data_ptr(), tensor._version) for tensor in tensors]
