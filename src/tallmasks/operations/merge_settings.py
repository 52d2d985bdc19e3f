"""Settings of `tallmasks merge` and `tallmasks compress`, from options, YAML files or Python arguments.

    base: meta-llama/Llama-3.2-1B          # as --base
    tasks:
      cars: ./cars                         # as --task cars=./cars
      dtd: {checkpoint: ./dtd, mask_lambda: 0.3, weight: 0.7, density: 0.5}
    method: consensus_ties
    options: {keep: 0.1}
    scaling_coefficient: 0.5
    output: ./merged                       # as -o
    out_shard_size: 5GB
    keep_base: ["embed*"]                  # `only` and `heads` too
    tokens: base

`weight`, `density`, `trim` and `normalize` belong to `tallmasks merge`, `bits` and `include_base` to `tallmasks
compress`.
`mergekit_files` translates mergekit's files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tallmasks import __version__
from tallmasks.errors import OptionError, TallmasksError, nearest, option_errors, short, warn
from tallmasks.io.dtypes import DTYPE_ALIASES
from tallmasks.io.plain_files import expanded, new_path
from tallmasks.io.validation import Section, optional, validated
from tallmasks.io.yaml_files import read_foreign_yaml, scalar
from tallmasks.methods import registry
from tallmasks.methods.options import parse_spec, written
from tallmasks.methods.weighting import Weighting
from tallmasks.operations.mergekit_files import MERGEKIT, translated

MASK_LAMBDA = 0.4
"""Default: the middle of the paper's grid."""

CheckpointName = Annotated[
    str,
    BeforeValidator(lambda value: os.fspath(value) if isinstance(value, os.PathLike) else value),
    AfterValidator(expanded),
    Field(description="a path or a repository"),
]
Density = Annotated[float, Field(ge=1e-6, le=1)]
MaskLambda = Annotated[float, Field(ge=0)]


class TaskSettings(Section):
    """A fine-tuned model; ``sha256`` is the checksums in a recipe."""

    checkpoint: CheckpointName
    weight: float = optional()
    density: Density = optional()
    mask_lambda: MaskLambda = optional()
    sha256: dict[str, str] = optional("by file")


def _shard_size(value: Any) -> int:
    """The bytes of "5GB", "500MB" or a number of bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", str(value).strip(), re.IGNORECASE)
    unit = (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " ") if match else 0
    size = int(Decimal(match[1]) * unit) if match else 0
    if not size:
        raise ValueError(f"found {short(value)}, expected a size such as 5GB or 500MB")
    return size


def _task(value: Any) -> Any:
    if not isinstance(value, str | os.PathLike | Mapping):
        raise ValueError(f"found {short(value)}, expected a path, a repository, or keys with values: checkpoint, ...")
    return value if isinstance(value, Mapping) else {"checkpoint": value}


Task = Annotated[TaskSettings, BeforeValidator(_task)]
MethodName = Annotated[str, AfterValidator(lambda spec: written(*parse_spec(spec)))]
Patterns = Annotated[
    list[str],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(strict=False, description="patterns of tensors' names"),
]


def _heads(value: Any) -> Any:
    """True selects the tensors whose shapes differ, as no patterns do."""
    if isinstance(value, bool):
        return [] if value else None
    return value


class Settings(Section):
    """The settings, in the order of the recipe; see `opened_models.tensors_left_out` for only, keep_base and heads."""

    tallmasks: str = optional("the version that wrote it")
    base: CheckpointName = optional()
    base_sha256: dict[str, str] = optional("by file")
    tasks: dict[str, Task] = Field({})
    method: MethodName = optional()
    options: dict[str, Any] = Field({})
    scaling_coefficient: float = optional()
    mask_lambda: MaskLambda = optional()
    weight: float = optional()
    density: Density = optional()
    trim: Literal["model", "tensor"] = optional()
    normalize: bool = optional()
    dtype: Annotated[str, AfterValidator(lambda name: DTYPE_ALIASES.get(name, name))] = optional()
    step: float = optional()
    bits: Literal[2, 3, 4, 8] = optional()
    out_shard_size: Annotated[int, BeforeValidator(_shard_size)] = optional()
    only: Patterns = Field([])
    keep_base: Patterns = Field([])
    tokens: Literal["base", "union"] = optional("the tokens of the merged embeddings")
    heads: Annotated[Patterns | None, BeforeValidator(_heads)] = optional("true, or patterns of tensors' names")
    layers: int = optional("number of blocks of the models")
    output: Annotated[Path, Field(strict=False)] = optional()
    include_base: bool = False

    @property
    def spec(self) -> str:
        """The method with its options. Raises TallmasksError for an unknown method or option."""
        return registry.spec_of({self.method: self.options} if self.options else self.method, "--method")

    @property
    def sha256(self) -> dict[str | None, dict[str, str]]:
        """The recorded checksums of files by task; the base's under None."""
        by_model = [(None, self.base_sha256), *((name, task.sha256) for name, task in self.tasks.items())]
        return {name: by_file for name, by_file in by_model if by_file is not None}

    def refuse(self, names: Collection[str], command: str) -> None:
        """Raise TallmasksError for settings that only the other ``command`` has."""
        found = self.model_fields_set.union(*(task.model_fields_set for task in self.tasks.values()))
        for name in names:
            if name in found:
                raise OptionError(f"{name} is a setting of `tallmasks {command}`, not of this command; leave it out")

    @property
    def mask_lambdas(self) -> list[float]:
        chosen = self.by_task("mask_lambda")
        return [chosen.get(task, MASK_LAMBDA) for task in self.tasks]

    @property
    def weighting(self) -> Weighting:
        return Weighting(self.by_task("weight"), self.by_task("density"), self.trim or "model", self.normalize)

    def by_task(self, setting: str) -> dict[str, Any]:
        """The values of a setting by task: the task's own, otherwise the one for all tasks."""
        general = getattr(self, setting)
        own = {name: getattr(task, setting) for name, task in self.tasks.items()}
        by_task = {name: general if value is None else value for name, value in own.items()}
        return {name: value for name, value in by_task.items() if value is not None}


KEYS = tuple(Settings.model_fields)
BY_TASK = ("mask_lambda", "weight", "density")
"""Settings for all tasks or for one."""


def checked_settings(values: Mapping[str, Any], where: object, dtypes: Collection[str]) -> Settings:
    """Validate settings. Raises TallmasksError with the place and the key of a wrong value."""
    settings = validated(values, Settings, where)
    if settings.dtype not in (None, *dtypes):
        reason = f"dtype: found {settings.dtype}, expected one of {', '.join(dtypes)}"
        raise TallmasksError(f"{where}: {reason}" if where else reason)
    return settings


def read_settings_file(path: Path, base: str | None, dtypes: Collection[str]) -> dict[str, Any]:
    """Read settings from a file; ``base`` overrides the file's base.

    Raises TallmasksError if the file cannot be read, and OptionError if a key or value is wrong.
    """
    try:
        content = read_foreign_yaml(path)
    except FileNotFoundError:
        raise TallmasksError(f"{path}: no such file; expected a YAML file with base, tasks, method, output") from None
    if not isinstance(content, dict):
        raise OptionError(f"{path}: found {short(content)}, expected keys and values: {', '.join(KEYS)}")
    values = {str(key): value for key, value in content.items() if value is not None}
    with option_errors():
        if not values.keys().isdisjoint(MERGEKIT):
            values = translated(values, path, base)
        settings = checked_settings(values, path, dtypes)
    if settings.tallmasks not in (None, __version__):
        warn(f"{path}: written by version {settings.tallmasks}, this is {__version__}; the last bits can differ")
    return settings.model_dump(exclude_unset=True)


def from_python(base: Any, tasks: Mapping[str, Any], out: Any, dtypes: Collection[str], **settings: Any) -> Settings:
    """The settings from a function's arguments, which can be `Path`s, torch dtypes and mappings by task."""
    if not isinstance(tasks, Mapping) or not tasks:
        raise TallmasksError(f"tasks: found {short(tasks)}, expected a mapping such as {{'cars': './cars'}}")
    values = {name: value for name, value in settings.items() if value is not None}
    named = {str(name): {"checkpoint": checkpoint} for name, checkpoint in tasks.items()}
    for setting in BY_TASK:
        if isinstance(values.get(setting), Mapping):
            for name, value in values.pop(setting).items():
                task_settings(named, name, setting)[setting] = value
    if "dtype" in values:
        values["dtype"] = str(values["dtype"]).removeprefix("torch.")
    return complete({**values, "base": base, "tasks": named, "output": out}, dtypes)


def task_settings(tasks: dict[str, dict[str, Any]], name: str, setting: str) -> dict[str, Any]:
    if name not in tasks:
        option = f"--{setting.replace('_', '-')}"
        raise OptionError(f"{option} {name}=...: there is no task {name!r}{nearest(name, tasks)}")
    return tasks[name]


def complete(values: dict[str, Any], dtypes: Collection[str], needs_output: bool = True) -> Settings:
    """Raises OptionError that names all missing settings, or the option of a wrong value."""
    tasks = values["tasks"]
    is_mean = parse_spec(str(values.get("method")))[0] == "weight_averaging"
    if is_mean and tasks and not values.get("base"):
        values["base"] = next(iter(tasks.values()))["checkpoint"]  # the mean does not depend on the base
    options = {"base": "--base BASE", "tasks": "--task NAME=CHECKPOINT", "method": "--method METHOD"}
    options |= {"output": "-o OUT"} if needs_output else {}
    if missing := [option for name, option in options.items() if not values.get(name)]:
        raise OptionError(f"missing: {', '.join(missing)}")
    if output := values.get("output"):
        values["output"] = new_path(str(output))
    try:
        return checked_settings(values, "", dtypes)
    except TallmasksError as error:
        keys, _, reason = str(error).partition(": ")
        raise OptionError(f"{_option_of(keys.split('.'))}: {reason}") from None


def _option_of(keys: Sequence[str]) -> str:
    """The option of a setting: `--weight cars=...` of tasks.cars.weight."""
    name, of_task = (keys[-1], f" {keys[1]}=...") if keys[0] == "tasks" and len(keys) > 2 else (keys[0], "")
    name = {"checkpoint": "task", "tasks": "task", "options": "option"}.get(name, name)
    return f"--{name.replace('_', '-')}{of_task}"


def in_python(text: str) -> str:
    """A message with the arguments of Python's functions instead of options: `k=1` for `--k 1`."""

    def name_of(option: str) -> str | None:
        name = {"task": "tasks", "option": "options"}.get(option, option.replace("-", "_"))
        return name if name in KEYS else None

    def argument(match: re.Match[str]) -> str:
        name, value = name_of(match[1]), match[2]
        if name is None or value is None:
            return f"`{name}=True`" if name == "heads" else f"`{name}`" if name else match[0]
        return f"`{name}={scalar(value.strip(chr(39)))!r}`"

    text = re.sub(r"`--([a-z][a-z-]*)(?: ([^`]+))?`", argument, text)
    text = re.sub(r"(?<![\w`-])--([a-z][a-z-]*)", lambda match: name_of(match[1]) or match[0], text)
    return re.sub(r"^-o ", "out ", text)
