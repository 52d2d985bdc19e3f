"""What `tallmasks merge` and `tallmasks compress` work on: one class for options, a YAML file and Python's arguments.

    base: meta-llama/Llama-3.2-1B          # what --base takes
    tasks:
      cars: ./cars                         # what --task takes, cars=./cars
      dtd: {checkpoint: ./dtd, mask_lambda: 0.3, weight: 0.7, density: 0.5}
    method: consensus_ties
    options: {keep: 0.1}
    scaling_coefficient: 0.5
    output: ./merged                       # what -o takes
    out_shard_size: 5GB
    keep_base: ["embed*"]                  # `only`, `heads` too
    tokens: base

`weight` and `density` of all tasks, `trim` and `normalize` are of `tallmasks merge` alone.  `include_base`, true or
false, is of `tallmasks compress` alone.  `mergekit_files` has the words of mergekit's files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tallmasks import __version__
from tallmasks.commands.mergekit_files import MERGEKIT, in_own_words
from tallmasks.errors import TallmasksError, short, warn
from tallmasks.io.plain_files import expanded
from tallmasks.io.validation import Section, optional, validated
from tallmasks.io.yaml_files import read_yaml
from tallmasks.methods import registry
from tallmasks.methods.weighting import Weighting

MASK_LAMBDA = 0.4
"""The middle of the paper's grid, where masks are needed and none is given."""


CheckpointName = Annotated[
    str,
    BeforeValidator(lambda value: os.fspath(value) if isinstance(value, os.PathLike) else value),
    AfterValidator(expanded),
    Field(description="a path or a repository"),
]
Density = Annotated[float, Field(gt=0, le=1)]
MaskLambda = Annotated[float, Field(ge=0)]


class GivenTask(Section):
    """A fine-tuned model; ``sha256`` is what a recipe says of its files."""

    checkpoint: CheckpointName
    weight: float = optional()
    density: Density = optional()
    mask_lambda: MaskLambda = optional()
    sha256: dict[str, str] = optional("by file")


def _shard_size(value: Any) -> int:
    """How many bytes a text such as "5GB" or "500MB" means; a number is bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", str(value).strip(), re.IGNORECASE)
    unit = (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " ") if match else 0
    size = int(Decimal(match[1]) * unit) if match else 0
    if not size:
        raise TallmasksError(f"--out-shard-size {value}: expected a number of bytes, 5GB or 500MB for instance")
    return size


Task = Annotated[
    GivenTask, BeforeValidator(lambda value: value if isinstance(value, Mapping) else {"checkpoint": value})
]
Patterns = Annotated[
    list[str],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(strict=False, description="patterns of tensors' names"),
]


class Given(Section):
    """What is merged or compressed, in the order of the recipe.  ``base`` and ``checkpoint`` name a file, a folder or a
    repository; only, keep_base and heads are those of `opened_models.apart`."""

    tallmasks: str = optional("the version that wrote it")
    base: CheckpointName = optional()
    base_sha256: dict[str, str] = optional("by file")
    tasks: dict[str, Task] = Field({})
    method: str = optional()
    options: dict[str, Any] = Field({})
    scaling_coefficient: float = optional()
    k: int = optional()
    mask_lambda: MaskLambda = optional()
    weight: float = optional()
    density: Density = optional()
    trim: Literal["model", "tensor"] = optional()
    normalize: bool = optional()
    dtype: str = optional()
    out_shard_size: Annotated[int, BeforeValidator(_shard_size)] = optional()
    only: Patterns = Field([])
    keep_base: Patterns = Field([])
    tokens: Literal["base", "union"] = optional("whose rows the embeddings have")
    heads: Patterns = optional()
    layers: int = optional("how many blocks the models have")
    output: Annotated[Path, Field(strict=False)] = optional()
    include_base: bool = False

    @property
    def spec(self) -> str:
        """The method with its options. Raises TallmasksError where there is no such method or option."""
        return registry.spec_of({self.method: self.options} if self.options else self.method, "--method")

    @property
    def sha256(self) -> dict[str | None, dict[str, str]]:
        """What a recipe says of files, by task; of the base under None."""
        by_model = [(None, self.base_sha256), *((name, task.sha256) for name, task in self.tasks.items())]
        return {name: by_file for name, by_file in by_model if by_file is not None}

    def lacks(self, names: Collection[str], command: str) -> None:
        """Refuse what only another command takes. Raises TallmasksError, which names the command."""
        settings = self.model_fields_set.union(*(task.model_fields_set for task in self.tasks.values()))
        for name in names:
            if name in settings:
                raise TallmasksError(f"{name} means nothing here: it is of `tallmasks {command}`; leave it out")

    @property
    def lambdas(self) -> list[float]:
        """The mask lambda of every task, in order."""
        lambdas = self.by_task("mask_lambda")
        return [lambdas.get(task, MASK_LAMBDA) for task in self.tasks]

    @property
    def weighting(self) -> Weighting:
        """How the tasks count."""
        return Weighting(self.by_task("weight"), self.by_task("density"), self.trim or "model", self.normalize)

    def by_task(self, setting: str) -> dict[str, Any]:
        """A setting of every task that has it: its own, or else that of all tasks."""
        general = getattr(self, setting)
        own = {name: getattr(task, setting) for name, task in self.tasks.items()}
        by_task = {name: general if value is None else value for name, value in own.items()}
        return {name: value for name, value in by_task.items() if value is not None}


KEYS = tuple(Given.model_fields)


def checked_settings(values: Mapping[str, Any], where: object, dtypes: Collection[str]) -> Given:
    """Settings, each of its kind.  Raises TallmasksError, which says where and which key is wrong."""
    given = validated(values, Given, where)
    if given.dtype not in (None, *dtypes):
        raise TallmasksError(f"{where}: dtype: found {given.dtype}, expected one of {', '.join(dtypes)}")
    return given


def read_models_file(path: Path, base: str | None, dtypes: Collection[str]) -> dict[str, Any]:
    """What a file says, as `checked_settings` takes it; ``base`` counts in the place of the file's own.

    Raises TallmasksError where it cannot be read, or a key or value is not what it may be.
    """
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        raise TallmasksError(f"{path}: no such file; expected a YAML file with base, tasks, method, output") from None
    if not isinstance(content, dict):
        raise TallmasksError(f"{path}: found {short(content)}, expected keys and values: {', '.join(KEYS)}")
    values = {str(key): value for key, value in content.items() if value is not None}
    if not values.keys().isdisjoint(MERGEKIT):
        values = in_own_words(values, path, base)
    given = checked_settings(values, path, dtypes)
    if given.tallmasks not in (None, __version__):
        warn(f"{path}: written by version {given.tallmasks}, and this is {__version__}: the last bits may differ")
    return given.model_dump(exclude_unset=True)
