"""What a process takes, wall and processor time and memory that no file stands behind; and two works in turns."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

EVERY = 0.02
"""Seconds between two looks at the memory."""


class Failed(Exception):
    """A process ended with another status than 0; its last words."""


@dataclass(frozen=True)
class Cost:
    """What a process and its children took.

    Attributes:
        wall_s, cpu_s: seconds; user and system of all of them.
        anon_mib: the largest sum of RssAnon over them that was seen, in MiB: pages of mapped files do not count.
        output: what it printed.
    """

    wall_s: float
    cpu_s: float
    anon_mib: float
    output: str


def cost_of(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Cost:
    """Run a process to its end.  Raises Failed where it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command], env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    spoken: list[str] = []
    assert process.stdout
    listener = threading.Thread(target=lambda stream: spoken.append(stream.read()), args=(process.stdout,))
    listener.start()
    largest = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        largest = max(largest, sum(map(_anonymous, _family(process.pid))))
        time.sleep(EVERY)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    listener.join()
    process.stdout.close()
    if process.returncode:
        raise Failed(f"{' '.join(map(str, command[:6]))} ...: status {process.returncode}\n{spoken[0][-2000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, largest / 1024, spoken[0])


def best(costs: Sequence[Cost]) -> Cost:
    """The least of each time, and the most memory: what disturbs a run only adds to its times."""
    return Cost(
        min(cost.wall_s for cost in costs),
        min(cost.cpu_s for cost in costs),
        max(cost.anon_mib for cost in costs),
        costs[-1].output,
    )


def _family(pid: int) -> Iterator[int]:
    """A process and all that it started, as far as they still are."""
    yield pid
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _family(int(child))


def _anonymous(pid: int) -> int:
    """RssAnon in KiB."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
    return 0


Work = Callable[[], int]
"""Does the work, and says how much that was."""


def rate(work: Work, device: torch.device) -> float:
    """How much of it is done per second."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    done = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return done / (time.perf_counter() - start)


def median_ratio(engine: Work, bare: Work, device: torch.device, rounds: int, unit: str) -> float:
    """The engine's rate over the bare one's, the median over rounds after one that does not count; prints each."""
    for work in (engine, bare):
        work()
    ratios = []
    for round_ in range(rounds):
        order = (engine, bare) if round_ % 2 == 0 else (bare, engine)
        found = {work: rate(work, device) for work in order}
        ratios.append(found[engine] / found[bare])
        print(
            f"engine {found[engine]:8.1f} {unit}/s   bare {found[bare]:8.1f} {unit}/s   ratio {ratios[-1]:.3f}",
            flush=True,
        )
    return statistics.median(ratios)
