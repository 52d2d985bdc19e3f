"""Parallel map on threads, the number of threads, and values computed once for all threads."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_AT_ONCE = 64
"""Results of `in_batches` that are in memory at once."""


def cores() -> int:
    """The number of threads: NUMBA_NUM_THREADS, the value of `numba.set_num_threads`, or the number of cores."""
    if "numba" in sys.modules:  # which is slow to import
        return int(sys.modules["numba"].get_num_threads())
    return int(os.environ.get("NUMBA_NUM_THREADS") or len(os.sched_getaffinity(0)))


def parallel(work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None) -> list[Result]:
    """Apply `work` to every item on several threads (default: :func:`cores`); results are in the order of the items.

    The calling thread works too. After an error no further item is started; the error is raised once all threads have
    stopped.
    """
    jobs = list(enumerate(items))
    waiting = iter(jobs)  # next() on a list iterator is atomic
    results: dict[int, Result] = {}

    def take() -> None:
        try:
            for number, item in waiting:
                results[number] = work(item)
        except BaseException:
            for _ in waiting:
                pass
            raise

    helpers = 0 if len(jobs) < 2 else min(cores() if threads is None else threads, len(jobs)) - 1
    if helpers < 1:
        take()
    else:
        with ThreadPoolExecutor(helpers) as pool:
            futures = [pool.submit(take) for _ in range(helpers)]
            take()
        for future in futures:
            future.result()
    return [results[number] for number, _ in jobs]


def in_batches(work: Callable[[Item], Result], items: Sequence[Item], threads: int | None = None) -> Iterator[Result]:
    """As :func:`parallel`, for results that are used in order, so that few are in memory at once."""
    for start in range(0, len(items), _AT_ONCE):
        yield from parallel(work, items[start : start + _AT_ONCE], threads)


def cached(compute: Callable[..., Result]) -> Callable[..., Result]:
    """Cache a function's results; threads that ask for the same arguments at the same time wait for one computation."""
    values: dict[tuple[object, ...], Result] = {}
    locks: defaultdict[tuple[object, ...], threading.RLock] = defaultdict(threading.RLock)
    new_lock = threading.Lock()

    @functools.wraps(compute)
    def ask(*arguments: object) -> Result:
        if arguments not in values:
            with new_lock:
                lock = locks[arguments]
            with lock:
                if arguments not in values:
                    values[arguments] = compute(*arguments)
        return values[arguments]

    return ask
