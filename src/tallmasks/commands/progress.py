"""How far long work is: a bar with the time left where somebody watches, a line now and then where not."""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

EVERY = 30.0  # seconds between two lines
AFTER = 10.0  # seconds before the first


class WorkProgress:
    """Counts what is done of ``total``, in any unit; may be told from any thread.  ``what`` it is, is for people."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, max(total, 1), 0
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._said = self._begun + AFTER - EVERY
        self._bar = _bar(what, self._total) if sys.stderr.isatty() else None

    def add(self, amount: int) -> None:
        """So much more is done."""
        with self._lock:
            self._done = min(self._done + amount, self._total)
            if self._bar:
                bar, task = self._bar
                bar.update(task, completed=self._done)
                return
            now = time.monotonic()
            if now - self._said > EVERY:
                self._said = now
                left = (now - self._begun) * (self._total / max(self._done, 1) - 1)
                share, spoken = 100 * self._done // self._total, timedelta(seconds=round(left))
                print(f"{self._what}: {share} %, about {spoken} left", file=sys.stderr, flush=True)

    def __enter__(self) -> WorkProgress:
        if self._bar:
            self._bar[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar[0].stop()


def _bar(what: str, total: int) -> tuple[Progress, TaskID]:
    """A bar and what it is told by; rich is slow to import, for which those who do not watch need not wait."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    return bar, bar.add_task(what, total=total)
