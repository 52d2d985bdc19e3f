"""A walk over pieces of a whole on several threads, and what only the whole walk can tell.

A piece whose work needs that is put off: it raises `Later`, and is worked on again when all others are done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")


class Later(Exception):
    """What a piece's work needs is known when all pieces were looked at."""


class _Here(threading.local):
    """What this thread works on: the walk and the number of the piece, if that can be put off."""

    piece: tuple[object, int] | None = None


_HERE = _Here()


def walk(items: Iterable[Item], work: Callable[[Item], Result], threads: int) -> Iterator[tuple[Item, Result]]:
    """`work` on every item, whose first error ends it; items with their results, in whatever order they end.

    Args:
        items: pieces that have nothing in common.
        work: from any thread, once for each item, or again where it raised Later.
        threads: how many; with one the work is done in the caller's.
    """
    this, put_off = object(), []

    def first(numbered: tuple[int, Item]) -> Result:
        return _working(lambda: work(numbered[1]), (this, numbered[0]))

    for numbered, result in _on_threads(enumerate(items), first, threads):
        if isinstance(result, Later):
            put_off.append(numbered[1])
        else:
            yield numbered[1], result
    for item, result in _on_threads(put_off, lambda item: _working(lambda: work(item), None), threads):
        if isinstance(result, Later):
            raise result
        yield item, result


def _working(work: Callable[[], Result], piece: tuple[object, int] | None) -> Result:
    before, _HERE.piece = _HERE.piece, piece
    try:
        return work()
    finally:
        _HERE.piece = before


def _on_threads(
    items: Iterable[Item], work: Callable[[Item], Result], threads: int
) -> Iterator[tuple[Item, Result | Later]]:
    """Items with their results, or with the Later that was raised."""
    waiting, taking, ended = iter(items), threading.Lock(), threading.Event()

    def worked() -> Iterator[tuple[Item, Result | Later]]:
        while not ended.is_set():
            with taking:
                try:
                    item = next(waiting)
                except StopIteration:
                    return
            try:
                result: Result | Later = work(item)
            except Later as later:
                result = later
            yield item, result

    if threads == 1:
        yield from worked()
        return
    found: SimpleQueue[tuple[Item, Result | Later] | BaseException | None] = SimpleQueue()

    def worker() -> None:
        try:
            for pair in worked():
                found.put(pair)
            found.put(None)
        except BaseException as error:
            found.put(error)

    with ThreadPoolExecutor(threads) as pool:
        try:
            for _ in range(threads):
                pool.submit(worker)
            left = threads
            while left:
                pair = found.get()
                if isinstance(pair, BaseException):
                    raise pair
                if pair is None:
                    left -= 1
                else:
                    yield pair
        finally:
            ended.set()


class Majority:
    """TIES' sign where the trimmed vectors sum to 0: that of the sum of all elected signs, -1, 0 or 1.

    Few weights ask for it, of many models none, and the walk that merges elects every sign: so pieces tell what they
    found, and those that need the sum of it are put off.  Outside of such a walk it is counted when it is asked for.

    Args:
        size: P', how many weights there are.
        count: how many elected signs are 1, less how many are -1.
    """

    def __init__(self, size: int, count: Callable[[], int]) -> None:
        self._size, self._count = size, count
        self._lock = threading.Lock()
        self._told: dict[object, tuple[set[int], list[int]]] = {}
        self.known: np.float32 | None = None
        """The sign, as soon as it is known."""

    def tell(self, size: int, balance: int) -> None:
        """So many elected signs of the piece that this thread works on sum to that."""
        if _HERE.piece is None:
            return
        this, piece = _HERE.piece
        with self._lock:
            pieces, sums = self._told.setdefault(this, (set(), [0, 0]))
            if piece not in pieces:
                pieces.add(piece)
                sums[:] = sums[0] + size, sums[1] + balance
            if sums[0] == self._size:
                self.known = np.float32(np.sign(sums[1]))
                self._told.clear()

    def sign(self) -> np.float32:
        """It."""
        if self.known is None and _HERE.piece is not None:
            raise Later
        with self._lock:
            if self.known is None:
                self.known = np.float32(np.sign(self._count()))
        return self.known
