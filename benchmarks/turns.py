"""Two ways to do the same work, in turns, so that a machine's other work meets both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

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
