"""Settings chosen by a score of one's own: a command gives each candidate model a number."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tallmasks.bundles.bundle import load_bundle
from tallmasks.bundles.bundle_models import model_of
from tallmasks.errors import OptionError, TallmasksError, option_errors, short, warn
from tallmasks.io.atomic_files import atomic_write_text, remove
from tallmasks.io.yaml_files import scalar
from tallmasks.methods import Method, registry
from tallmasks.methods.weighting import Weighting
from tallmasks.operations.compress import prepare_bundle, write_bundle
from tallmasks.operations.merge import method_of, prepare_merge, write_merged
from tallmasks.operations.merge_settings import ChoiceRecord, Settings, complete
from tallmasks.operations.opened_models import Models
from tallmasks.vectors.checkpoints.writing import new_checkpoint

_LINES = 10
"""The number of lines of a failed command to show."""
_LONGEST = 10**6
"""The longest time limit of a command, in seconds."""
_SETTINGS = ("scaling_coefficient", "mask_lambda", "weight", "density")
"""Settings that can be chosen; all other keys are options of the method."""
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """The values of a candidate, and its score."""

    values: Values
    score: float


@dataclass(frozen=True)
class Choice:
    """What to choose, and how.

    Attributes:
        grid: the values to try, by setting or option of the method.
        command: for the shell; ``{}`` is the candidate's folder (or file), ``{task}`` the name of the task. The last
            line of its output is the score.
        smaller: whether the smallest score is the best.
        timeout: seconds after which the command is stopped; None for no limit.
    """

    grid: Mapping[str, Sequence[Any]]
    command: str
    smaller: bool = False
    timeout: float | None = None

    def candidates(self) -> list[Values]:
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    def best(self, trials: Sequence[Trial], whose: str = "") -> Trial:
        """The first trial with the best score; warns if a value is at an end of its grid."""
        found = (min if self.smaller else max)(trials, key=lambda trial: trial.score)
        for key, values in self.grid.items():
            numbers = [value for value in values if isinstance(value, int | float)]
            as_good = {trial.values[key] for trial in trials if trial.score == found.score}
            if len(numbers) > 1 and as_good in ({min(numbers)}, {max(numbers)}):
                end = "smallest" if found.values[key] == min(numbers) else "largest"
                warn(
                    f"{whose}the best {key}, {found.values[key]:g}, is the {end} of those tried; another may be better"
                )
        return found

    def score(self, model: Path, task: str | None) -> float:
        """Run the command. Raises TallmasksError if it fails, takes too long, or prints no number."""
        command = self.command.replace("{}", shlex.quote(str(model))).replace("{task}", shlex.quote(task or ""))
        with tempfile.TemporaryFile("w+", errors="replace") as file:  # a pipe would wait for processes left behind
            process = subprocess.Popen(
                command, shell=True, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                process.wait(self.timeout)
                problem = f"ended with status {process.returncode}" if process.returncode else None
            except subprocess.TimeoutExpired:
                problem = f"did not end within {self.timeout:g} seconds"
            finally:
                _kill(process)
            file.seek(0)
            output = file.read()
        if problem is not None:
            raise _failed(command, problem, output)
        *_, last = [line for line in output.splitlines() if line.strip()] or [""]
        try:
            number = float(last)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise _failed(command, "printed no number in its last line", output)
        return number


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill what runs of a command: itself and its children, also those in the background."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failed(command: str, what: str, output: str) -> TallmasksError:
    lines = [f"  {line}" for line in output.splitlines()[-_LINES:]] or ["  nothing"]
    return TallmasksError(f"--score: {short(command)} {what}; it printed:", *lines)


def choice_of(
    grid: Mapping[str, str], command: str | None, smaller: bool, timeout: float | None, needed: str = "{}"
) -> Choice | None:
    """The choice on the command line, None without one. Raises OptionError for options that do not go together."""
    if not grid and command is None and timeout is None and not smaller:
        return None
    if not grid or command is None:
        raise OptionError(
            "--choose KEY=VALUE,VALUE and --score COMMAND belong together, also for --smaller and --score-timeout;"
            " give both"
        )
    if timeout is not None and not 0 < timeout <= _LONGEST:
        raise OptionError(f"--score-timeout: found {timeout:g}, expected seconds, above 0 and at most {_LONGEST:,}")
    if missing := [word for word in needed.split() if word not in command]:
        raise OptionError(
            f"--score: {short(command)} lacks {missing[0]}, which is replaced; for example 'python score.py {needed}'"
        )
    values = {key: [scalar(text) for text in texts.split(",")] for key, texts in grid.items()}
    if wrong := [key for key, each in values.items() if None in each or len({*each}) < 2]:
        raise OptionError(
            f"--choose {wrong[0]}: found {short(grid[wrong[0]])}, expected two or more different values with commas"
        )
    return Choice(values, command, smaller, timeout)


def with_values(settings: Settings, values: Values) -> Settings:
    """The settings with chosen values. Raises OptionError if one is not allowed."""
    dump = settings.model_dump(exclude_unset=True)
    options = registry.all_options(registry.get(settings.method))
    for key, value in values.items():
        if key not in (*_SETTINGS, *options):
            raise OptionError(f"--choose {key}: expected one of {', '.join((*_SETTINGS, *options))}")
        by_task = any(getattr(task, key, None) is not None for task in settings.tasks.values())
        if by_task or (getattr(settings, key) if key in _SETTINGS else settings.options.get(key)) is not None:
            raise OptionError(f"--choose {key}: a value is also given; leave one of them out")
        (dump if key in _SETTINGS else dump["options"])[key] = value
    return complete(dump)


@dataclass
class Trials:
    """Candidates beside the output, and the scores that are known, also those of a run that was interrupted."""

    folder: Path
    choice: Choice
    inputs: str

    @classmethod
    def of(cls, choice: Choice, models: Models) -> Trials:
        settings = models.settings
        told = settings.model_dump(mode="json", exclude={"output"})
        sources = {
            str(name): {**one.origin, **models.sha256s.get(name, {})} for name, one in models.checkpoints.items()
        }
        return cls(settings.output.with_name(f"{settings.output.name}.choosing"), choice, json.dumps([told, sources]))

    def known(self, values: Values, task: str | None) -> float | None:
        return self._scores().get(self._key(values, task))

    def scored(self, model: Path, values: Values, task: str | None = None) -> float:
        """Score a candidate and remove it."""
        try:
            number = self.choice.score(model, task)
        finally:
            remove(model)
        scores = self._scores() | {self._key(values, task): number}
        atomic_write_text(self.folder / "scores.json", json.dumps(scores))
        return number

    def _scores(self) -> dict[str, float]:
        try:
            return dict(json.loads((self.folder / "scores.json").read_text()))
        except (FileNotFoundError, ValueError):
            return {}

    def _key(self, values: Values, task: str | None) -> str:
        return hashlib.sha256(json.dumps([self.inputs, self.choice.command, values, task]).encode()).hexdigest()

    def new(self, name: str) -> Path:
        """A free path for a candidate."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove(self.folder / name)
        return self.folder / name


def merge_best(settings: Settings, choice: Choice) -> tuple[Method, float, Weighting, Models, list[str]]:
    """Merge and score every candidate, and write the best to the output. Returns what `prepare_merge` does for it,
    and the lines of `write_merged`."""
    every = {tuple(values.items()): with_values(settings, values) for values in choice.candidates()}
    with option_errors():
        prepared = {values: method_of(one) for values, one in every.items()}
    *_, models = prepare_merge(next(iter(every.values())))
    trials, runs = list[Trial](), Trials.of(choice, replace(models, settings=settings))
    for key, one in every.items():
        values = dict(key)
        score = runs.known(values, None)
        if score is None:
            candidate = runs.new(f"model{settings.output.suffix}")
            here = one.model_copy(update={"output": candidate})
            write_merged(*prepared[key], replace(models, settings=here))
            score = runs.scored(candidate, values)
        trials.append(Trial(values, score))
        print(f"  {_written(values)}: {score:g}", flush=True)
    best = choice.best(trials)
    record = ChoiceRecord(command=choice.command, tried=[{**trial.values, "score": trial.score} for trial in trials])
    final = every[tuple(best.values.items())].model_copy(update={"choice": record})
    result = (*prepared[tuple(best.values.items())], replace(models, settings=final))
    lines = write_merged(*result)
    remove(runs.folder)
    return *result, lines


def best_lambdas(settings: Settings, choice: Choice) -> Settings:
    """Compress with every lambda, score each task's restored model, and return settings with each task's best."""
    if [*choice.grid] != ["mask_lambda"]:
        raise OptionError(f"--choose {', '.join(choice.grid)}: `compress` can only choose mask_lambda")
    every = {values["mask_lambda"]: with_values(settings, values) for values in choice.candidates()}
    method, models, contents = prepare_bundle(next(iter(every.values())))
    runs = Trials.of(choice, replace(models, settings=settings))
    trials: dict[str, list[Trial]] = {task: [] for task in settings.tasks}
    for value, one in every.items():
        values = {"mask_lambda": value}
        scores = {task: runs.known(values, task) for task in settings.tasks}
        if None in scores.values():
            bundle = runs.new("bundle")
            here = one.model_copy(update={"output": bundle})
            write_bundle(method, replace(models, settings=here), contents)
            for task in [task for task, score in scores.items() if score is None]:
                model = model_of(load_bundle(bundle, base=settings.base), task, task)
                candidate = runs.new("model" if model.is_folder else "model.safetensors")
                with new_checkpoint(candidate, model, ""):
                    pass
                scores[task] = runs.scored(candidate, values, task)
        for task, score in scores.items():
            trials[task].append(Trial(values, float(score or 0)))
        print(f"  {_written(values)}: {', '.join(f'{task} {score:g}' for task, score in scores.items())}", flush=True)
    best = {task: choice.best(each, f"{task}: ").values["mask_lambda"] for task, each in trials.items()}
    remove(runs.folder)
    tasks = {task: one.model_copy(update={"mask_lambda": best[task]}) for task, one in settings.tasks.items()}
    return settings.model_copy(update={"tasks": tasks})


def _written(values: Values) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())
