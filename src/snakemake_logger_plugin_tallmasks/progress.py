"""How far a run is, and how long it will take.  Jobs that ended, in this run and earlier ones, tell."""

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

AT_ONCE = "jobs at once"
"""The key in that file of how many jobs the last run had at work at once."""

DIGEST = re.compile("-[0-9a-f]{12}$")
RECENT = 8  # jobs of a rule: the time of the next one is the mean of these
EXAMPLES = "examples"  # their model is a catalogue, which no target names
FEW = 4  # jobs of a rule: their start-up hardly matters

START_UP = 60.0
"""Seconds: a shorter job that began before any of its rule ended may be mostly imports and compilation"""


@dataclass(frozen=True)
class Running:
    """A job that has been started."""

    rule: str
    model: str
    name: str
    title: str
    outputs: tuple[str, ...]
    logs: tuple[str, ...]
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
        self._adds_jobs = False  # a checkpoint of Snakemake's has been started
        self.total = 0
        self.written: list[str] = []

    # -- what happens -------------------------------------------------------------------------------------

    def begin(self, stats: Mapping[str, int]) -> None:
        """The jobs by rule, as Snakemake counts them."""
        self._planned = Counter({rule: count for rule, count in stats.items() if rule != "total"})
        self.total = stats.get("total", self._planned.total())

    def grow(self, total: int) -> None:
        """All jobs, as Snakemake counts them: those that `--until` leaves out, too, so only after a checkpoint."""
        if self._adds_jobs:
            self.total = total

    def expect(self, job: Mapping[str, Any]) -> None:
        """A job is to run: earlier times of its model count."""
        self._models.add(str(job["wildcards"].get("model", "")))

    def start(self, job: Mapping[str, Any]) -> None:
        """A job begins; `job` is Snakemake's record of it."""
        self.expect(job)
        self._adds_jobs |= job["is_checkpoint"]
        now = self._clock()
        self._first = now if self._first is None else self._first
        model = str(job["wildcards"].get("model", ""))
        title = job["rule_msg"] or job["rule_name"]
        rule = job["rule_name"]
        wildcards, logs = job["wildcards"], tuple(path for path in job["log"] if path.endswith(".log"))
        name = DIGEST.sub("", str(wildcards.get("name", wildcards.get("benchmark", rule))))
        self._running[job["jobid"]] = Running(
            rule, model, name, title, tuple(job["output"]), logs, now, not self._done[rule]
        )

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
        times[AT_ONCE] = {"": round(self._at_once(), 2)}
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
        return f"{counted(self.total)}: {parts}{self._time_left()}"

    def last(self) -> str:
        """How far it is, by the stage whose job ended last."""
        return f"{self._jobs()}: {self._of(self._last_rule)}" if self._last_rule else self.now()

    def now(self, width: int = sys.maxsize) -> str:
        """How far it is, by the stages that are at work, and where the job stands that has lasted longest.  In a line
        of `width` the step of that job comes first, then the time left, its stage, the other stages."""
        if not self._running:
            return self._jobs()
        at_work = Counter(job.rule for job in self._running.values())
        longest = min(self._running.values(), key=lambda job: job.since)
        words = last_words(longest.logs)
        step, jobs = f"; {longest.name}: {words}" if words else "", self._jobs()
        lines = [
            f"{jobs}: {', '.join(self._of(*stage) for stage in stages)}{step}"
            for stages in (at_work.items(), [(longest.rule, at_work[longest.rule])])
        ]
        lines += [f"{jobs}{step}", f"{self._finished()}{step}"]
        return next((line for line in lines if len(line) <= width), lines[-1])

    def _jobs(self) -> str:
        return f"{self._finished()}{self._time_left()}"

    def _finished(self) -> str:
        failed = f", {self._failed.total()} failed" if self._failed else ""
        return f"{self.done:>{len(str(self.total))}} of {counted(self.total)} done{failed}"

    def _of(self, rule: str, running: int = 0) -> str:
        done = self._done[rule] + running
        return f"{_stage(rule)} {done} of {max(self._planned[rule], done)}"

    # -- the time left ------------------------------------------------------------------------------------

    def _time_left(self) -> str:
        """The time left in words; empty below a minute, and where a stage to come was not measured."""
        seconds = self.seconds_left()
        return f", about {lasting(seconds)} left" if seconds is not None and seconds >= 60 else ""

    def seconds_left(self) -> float | None:
        """Seconds to the end of the run; None unless every stage to come was measured."""
        if self.total != self._planned.total():  # a checkpoint of Snakemake's added jobs of unknown stages
            return None
        now, work = self._clock(), 0.0
        for rule, planned in self._planned.items():
            count = planned - self._done[rule] - self._failed[rule]
            if count <= 0:
                continue
            seconds = self._expected(rule, count)
            if seconds is None:
                return None
            begun = sum(min(now - job.since, seconds) for job in self._running.values() if job.rule == rule)
            work += max(0.0, count * seconds - begun)
        return work / self._at_once()

    def _expected(self, rule: str, count: int) -> float | None:
        """Mean seconds of a stage's jobs; those of the first jobs where only `FEW` are to come."""
        seconds = self._mean(rule)
        return self._mean(_first(rule)) if seconds is None and count <= FEW else seconds

    def _mean(self, name: str) -> float | None:
        """Mean seconds in an earlier run of the same models, until this run has `RECENT` such jobs: a few may be short,
        as evaluations without a grid are."""
        here = [second for (rule, _), seconds in self._seconds.items() if rule == name for second in seconds[-RECENT:]]
        times = self._earlier.get(name, {})
        earlier = [seconds for model, seconds in times.items() if model in self._models]
        if not earlier and name in (EXAMPLES, _first(EXAMPLES)):
            earlier = list(times.values())
        measured = earlier if earlier and len(here) < RECENT else here
        return sum(measured) / len(measured) if measured else None

    def _at_once(self) -> float:
        """How many jobs were at work at once, on average; the pauses between them count."""
        if self._first is None or self._clock() - self._first < 1:
            return self._earlier.get(AT_ONCE, {}).get("", 1.0)
        now = self._clock()
        worked = self._worked + sum(now - job.since for job in self._running.values())
        return max(0.1, worked / (now - self._first))


STEP = re.compile(r"step (\d+)/(\d+) .* (\d+) s left$")
"""A line of a fine-tuning's log."""


def last_words(logs: Iterable[str]) -> str:
    """The last line of a job's logs, a fine-tuning's shortened to its step and the time left; empty where none is."""
    for log in logs:
        try:
            with Path(log).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 500))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            continue
        if len(lines) > 1 and not lines[-1].startswith("$ "):  # the first is the command, or not whole
            step = STEP.match(lines[-1])
            return f"step {step[1]} of {step[2]}, {lasting(float(step[3]))} left" if step else lines[-1].strip()
    return ""


def counted(jobs: int) -> str:
    return f"{jobs} job{'s' * (jobs != 1)}"


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
