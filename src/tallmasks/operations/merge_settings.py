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

`weight`, `density`, `trim`, `normalize` and `as_lora` belong to `tallmasks merge`, `bits` and `include_base` to
`tallmasks compress`.
`mergekit_files` translates mergekit's files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tallmasks.errors import OptionError, TallmasksError, nearest, option_errors, short
from tallmasks.io.dtypes import DTYPE_ALIASES, MERGED_DTYPES
from tallmasks.io.plain_files import expanded
from tallmasks.io.validation import Section, optional, validated
from tallmasks.io.yaml_files import read_foreign_yaml
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
]
Density = Annotated[float, Field(ge=1e-6, le=1)]
MaskLambda = Annotated[float, Field(ge=0)]


class TaskSettings(Section):
    """A fine-tuned model; ``sha256`` is the checksums in a recipe."""

    checkpoint: CheckpointName
    weight: float = optional()
    density: Density = optional()
    mask_lambda: MaskLambda = optional()
    sha256: dict[str, str] = optional()


class ChoiceRecord(Section):
    """What `--choose` tried, in a recipe."""

    command: str
    tried: list[dict[str, Any]]


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
    Field(strict=False),
]


def _heads(value: Any) -> Any:
    """True selects the tensors whose shapes differ, as no patterns do."""
    if isinstance(value, bool):
        return [] if value else None
    return value


def _dtype(value: Any) -> str:
    name = str(value).removeprefix("torch.")
    if (known := DTYPE_ALIASES.get(name, name)) not in MERGED_DTYPES:
        raise ValueError(f"found {short(value)}, expected one of {', '.join(MERGED_DTYPES)}")
    return known


class Settings(Section):
    """The settings, in the order of the recipe; see `tensor_roles.excluded_tensors` for only, keep_base and heads."""

    tallmasks: str = optional()  # the version that wrote it
    base: CheckpointName = optional()
    base_sha256: dict[str, str] = optional()  # by file
    tasks: dict[Annotated[str, Field(min_length=1)], Task] = Field({})
    method: MethodName = optional()
    options: dict[str, Any] = Field({})
    scaling_coefficient: float = optional()
    mask_lambda: MaskLambda = optional()
    weight: float = optional()
    density: Density = optional()
    trim: Literal["model", "tensor"] = optional()
    normalize: bool = optional()
    dtype: Annotated[str, BeforeValidator(_dtype)] = optional()
    out_shard_size: Annotated[int, BeforeValidator(_shard_size)] = optional()
    as_lora: int = optional()
    only: Patterns = Field([])
    keep_base: Patterns = Field([])
    tokens: Literal["base", "union"] = optional()
    heads: Annotated[Patterns | None, BeforeValidator(_heads)] = optional()
    layers: int = optional()  # the number of blocks, in a file of mergekit
    output: Annotated[Path, Field(strict=False)] = optional()
    include_base: bool = False
    choice: ChoiceRecord = optional()

    @property
    def spec(self) -> str:
        """The method with its options. Raises TallmasksError for an unknown method or option."""
        return registry.spec_of({self.method: self.options} if self.options else self.method, "method")

    @property
    def sha256(self) -> dict[str | None, dict[str, str]]:
        """The recorded checksums of files by task; the base's under None."""
        by_model = [(None, self.base_sha256), *((name, task.sha256) for name, task in self.tasks.items())]
        return {name: by_file for name, by_file in by_model if by_file is not None}

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
OF_MERGE = ("scaling_coefficient", "weight", "density", "normalize", "trim", "out_shard_size", "only", "heads",
            "tokens", "dtype", "as_lora")  # fmt: skip
OF_COMPRESS = ("include_base",)
"""Settings that only one of the commands has."""
_ONLY_OPTIONS = ("choose", "score", "smaller", "score_timeout")


def read_settings_file(path: Path, base: str | None, unsupported: Collection[str]) -> dict[str, Any]:
    """Read settings from a file; ``base`` overrides the file's base, ``unsupported`` are those of the other command.

    Raises TallmasksError if the file cannot be read, and OptionError if a key or value is wrong.
    """
    try:
        content = read_foreign_yaml(path)
    except FileNotFoundError:
        raise TallmasksError(f"{path}: no such file; expected a YAML file with base, tasks, method, output") from None
    if not isinstance(content, dict):
        raise OptionError(f"{path}: found {short(content)}, expected keys and values: {', '.join(KEYS)}")
    values = {str(key): value for key, value in content.items() if value is not None}
    if ours := [key for key in values if key in _ONLY_OPTIONS]:
        raise OptionError(f"{path}: {ours[0]} is no setting of a file; give it as --{ours[0].replace('_', '-')}")
    with option_errors():
        if not values.keys().isdisjoint(MERGEKIT):
            values = translated(values, path, base)
        settings = validated(values, Settings, path)
    found = settings.model_fields_set.union(*(task.model_fields_set for task in settings.tasks.values()))
    if wrong := sorted(found & {*unsupported}):
        raise OptionError(f"{path}: {wrong[0]} is not a setting of this command; leave it out")
    return settings.model_dump(exclude_unset=True, exclude={"choice"})


def from_python(base: Any, tasks: Mapping[str, Any], out: Any, **settings: Any) -> Settings:
    """The settings from a function's arguments, which can be `Path`s, torch dtypes and mappings by task."""
    if not isinstance(tasks, Mapping) or not tasks:
        raise TallmasksError(f"tasks: found {short(tasks)}, expected a mapping such as {{'cars': './cars'}}")
    values = {name: value for name, value in settings.items() if value is not None}
    named = {str(name): {"checkpoint": checkpoint} for name, checkpoint in tasks.items()}
    for setting in BY_TASK:
        given = values.get(setting)
        if isinstance(given, Iterable) and not isinstance(given, Mapping | str | bytes):
            example = dict.fromkeys(list(named)[:2], 0.5)
            raise OptionError(f"{setting}: found {short(given)}, expected one number, or a mapping by task: {example}")
        if isinstance(given, Mapping):
            for name, value in values.pop(setting).items():
                task_settings(named, name, setting)[setting] = value
    return complete({**values, "base": base, "tasks": named, "output": out})


def task_settings(tasks: dict[str, dict[str, Any]], name: str, setting: str) -> dict[str, Any]:
    if name not in tasks:
        raise OptionError(f"{setting}: there is no task {name!r}{nearest(name, tasks)}")
    return tasks[name]


def complete(values: dict[str, Any], needs_output: bool = True) -> Settings:
    """Raises OptionError that names all missing settings, or a wrong value."""
    tasks = values["tasks"]
    is_mean = parse_spec(str(values.get("method")))[0] == "weight_averaging"
    if is_mean and tasks and not values.get("base"):
        values["base"] = next(iter(tasks.values()))["checkpoint"]  # the mean does not depend on the base
    needed = ("base", "tasks", "method", *(["output"] if needs_output else []))
    if missing := [name for name in needed if not values.get(name)]:
        raise OptionError(f"missing: {', '.join(missing)}")
    if output := values.get("output"):
        values["output"] = Path(expanded(str(output)))
    with option_errors():
        return validated(values, Settings, "")
