"""How far a run is and how long it will take, by the jobs that ended in it and in earlier ones."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMES = Path(".tallmasks") / "times.json"
"""Mean seconds of a job by rule and model, from the last run that had any; of a rule's first jobs apart."""

START_UP = 60.0
"""Seconds: of a shorter job that began before any of its rule had ended, most may have been imports and compilation,
which later ones find done."""


@dataclass(frozen=True)
class Running:
    """A job that has been started."""

    rule: str
    model: str
    title: str
    outputs: tuple[str, ...]
    since: float
    first: bool
    """Whether it began before any job of its rule had ended."""


class Progress:
    """The jobs of one run.

    Args:
        clock: gives the time in seconds.
        targets: what the command line asks for, from which the models are read whose earlier times mean something.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, targets: Iterable[str] = tuple(sys.argv[1:])
    ) -> None:
        self._clock = clock
        self._models = {word for target in targets for word in re.split(r"[/:]|^(?:checkpoints|experiment)_", target)}
        self._earlier = _earlier()
        self._planned: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._running: dict[int, Running] = {}
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._worked = 0.0
        self._first: float | None = None
        self._last_rule = ""
        self.total = 0
        self.written: list[str] = []

    # -- what happens -------------------------------------------------------------------------------------

    def begin(self, stats: Mapping[str, int]) -> None:
        """The jobs by rule, as Snakemake counts them."""
        self._planned = Counter({rule: count for rule, count in stats.items() if rule != "total"})
        self.total = stats.get("total", self._planned.total())

    def start(self, job: Mapping[str, Any]) -> None:
        """A job begins; `job` is Snakemake's record of it."""
        now = self._clock()
        self._first = now if self._first is None else self._first
        model = str(job["wildcards"].get("model", ""))
        self._models.add(model)
        title = job["rule_msg"] or job["rule_name"]
        rule = job["rule_name"]
        self._running[job["jobid"]] = Running(rule, model, title, tuple(job["output"]), now, not self._done[rule])

    def finish(self, number: int) -> bool:
        """A job has ended well; True where it was the last of its rule."""
        job = self._running.pop(number, None)
        if job is None:
            return False
        took = self._clock() - job.since
        self._worked += took
        rule = _first(job.rule) if job.first and took < START_UP else job.rule
        self._seconds[rule, job.model].append(took)
        self._done[job.rule] += 1
        self._last_rule = job.rule
        self.written += [path for path in job.outputs if path.startswith("results/")]
        return self._done[job.rule] >= self._planned[job.rule]

    def fail(self, number: int) -> str:
        """A job has failed; gives what it was to do."""
        job = self._running.pop(number, None)
        if job is None:
            return ""
        self._failed[job.rule] += 1
        return job.title

    def remember(self) -> None:
        """Leave this run's times for the next."""
        times = dict(self._earlier)
        for (rule, model), seconds in self._seconds.items():
            times[rule] = {**times.get(rule, {}), model: round(sum(seconds) / len(seconds), 2)}
        if self._seconds and TIMES.parent.is_dir():
            with contextlib.suppress(OSError):  # a full disk: the next run guesses worse
                temporary = TIMES.with_name(f"{TIMES.name}.{os.getpid()}")
                temporary.write_text(json.dumps(times))
                temporary.replace(TIMES)

    # -- what is said -------------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        return self._done.total()

    def plan(self) -> str:
        """The jobs to come, in one line."""
        parts = ", ".join(f"{count} {_stage(rule)}" for rule, count in self._planned.items())
        return f"{self.total} job{'s' * (self.total > 1)}: {parts}{self._time_left()}"

    def last(self) -> str:
        """How far it is, by the stage whose job ended last."""
        return f"{self._jobs()}: {self._of(self._last_rule)}{self._time_left()}" if self._last_rule else self.now()

    def now(self) -> str:
        """How far it is, by the stages that are at work."""
        at_work = Counter(job.rule for job in self._running.values())
        parts = ", ".join(f"{self._of(rule, count)}" for rule, count in at_work.items())
        return f"{self._jobs()}{': ' if parts else ''}{parts}{self._time_left()}"

    def _jobs(self) -> str:
        failed = f", {self._failed.total()} failed" if self._failed else ""
        return f"{self.done:>{len(str(self.total))}} of {self.total} jobs done{failed}"

    def _of(self, rule: str, running: int = 0) -> str:
        done = self._done[rule] + running
        return f"{_stage(rule)} {done} of {max(self._planned[rule], done)}"

    # -- the time left ------------------------------------------------------------------------------------

    def _time_left(self) -> str:
        """What is left, in words: how long if every stage was measured, at least how long if not, or nothing."""
        left, known = self._work_left()
        if left is None:
            return ""
        seconds = left / self._at_once()
        if not known:
            return f", more than {lasting(seconds)} left" if seconds >= 60 else ""
        return f", about {lasting(seconds)} left" if seconds >= 60 else ", less than a minute left"

    def _work_left(self) -> tuple[float | None, bool]:
        """Seconds of jobs that are still to come, and whether all of them are of a rule that was measured."""
        left, known, any_known = 0.0, self._planned.total() >= self.total, False
        now = self._clock()
        for rule, planned in self._planned.items():
            count = planned - self._done[rule] - self._failed[rule]
            if count <= 0:
                continue
            seconds = self._expected(rule)
            if seconds is None and count == 1:
                seconds = self._expected(_first(rule))
            if seconds is None:
                known = False
                continue
            any_known = True
            begun = sum(min(now - job.since, seconds) for job in self._running.values() if job.rule == rule)
            left += max(0.0, count * seconds - begun)
        return (left if any_known else None), known

    def _expected(self, rule: str) -> float | None:
        """Seconds of a job: as measured in this run, or else in an earlier one of the same models."""
        here = [second for (name, _), seconds in self._seconds.items() if name == rule for second in seconds]
        earlier = [seconds for model, seconds in self._earlier.get(rule, {}).items() if model in self._models]
        found = here or earlier
        return sum(found) / len(found) if found else None

    def _at_once(self) -> float:
        """How many jobs were at work at once, on average; the pauses between them count."""
        if self._first is None or self._clock() - self._first < 1:
            return 1.0
        now = self._clock()
        worked = self._worked + sum(now - job.since for job in self._running.values())
        return max(0.1, worked / (now - self._first))


def lasting(seconds: float) -> str:
    """A stretch of time for people: 40 s, 12 min, 3.5 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _stage(rule: str) -> str:
    return rule.replace("_", " ")


def _first(rule: str) -> str:
    """What the times of a rule's first jobs are kept under."""
    return f"first {rule}"


def _earlier() -> dict[str, dict[str, float]]:
    try:
        times = json.loads(TIMES.read_text())
        return {
            str(rule): {str(model): float(seconds) for model, seconds in models.items()}
            for rule, models in times.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
