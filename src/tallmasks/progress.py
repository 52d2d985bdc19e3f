"""Progress of long work: a bar on a terminal, otherwise a line every 30 seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

EVERY = 30.0  # seconds between two lines
AFTER = 10.0  # seconds before the first


@contextmanager
def work_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a thread-safe function to call with the amount of work just done; ``total`` is in the same unit."""
    total = max(total, 1)
    if sys.stderr.isatty():
        from rich.console import Console  # slow to import
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda amount: bar.advance(task, amount)
        return
    lock, begun, done, printed = threading.Lock(), time.monotonic(), 0, AFTER - EVERY

    def add(amount: int) -> None:
        nonlocal done, printed
        with lock:
            done += amount
            took = time.monotonic() - begun
            if took - printed > EVERY and 100 * done >= total:  # before, the time left is a bad guess
                printed = took
                left = timedelta(seconds=max(0, round(took * (total / max(done, 1) - 1))))
                print(f"{what}: {min(100, 100 * done // total)} %, about {left} left", file=sys.stderr, flush=True)

    yield add
