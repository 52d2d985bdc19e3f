"""The YAML file that `tallmasks merge` and `tallmasks compress` take in the place of options; mergekit's too."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tallmasks import __version__
from tallmasks.commands.mergekit_files import MERGEKIT, in_own_words
from tallmasks.plan.refusals import Section, check, optional, shown
from tallmasks.plan.strict_yaml import read_yaml
from tallmasks.store.errors import TallmasksError, TallmasksWarning

CHECKPOINT = "a path or a repository"


class FilteredSetting(Section):
    filter: str = optional("a part of a tensor's name")
    value: float | Annotated[list[float], Field(min_length=1)]


TaskSetting = (
    float | Annotated[list[float], Field(min_length=1)] | Annotated[list[FilteredSetting], Field(min_length=1)]
)
"""A number, a gradient over the blocks, or {filter, value} in the order in which they count."""


class FileTask(Section):
    checkpoint: str = Field(description=CHECKPOINT)
    mask_lambda: float = optional()
    weight: TaskSetting = optional()
    density: TaskSetting = optional()
    sha256: dict[str, str] = optional("by file")


class ModelsFile(Section):
    tallmasks: str = optional("the version that wrote it")
    base: str = optional(CHECKPOINT)
    base_sha256: dict[str, str] = optional("by file")
    tasks: dict[str, Annotated[str, Field(description=CHECKPOINT)] | FileTask] = optional("checkpoints by task")
    method: str = optional()
    options: dict[str, Any] = optional("names and values")
    mask_lambda: float = optional()
    weight: TaskSetting = optional()
    density: TaskSetting = optional()
    trim: Literal["model", "tensor"] = optional()
    normalize: bool = optional()
    dtype: str = optional()
    out_shard_size: int | str = optional()
    only: list[str] = optional("patterns")
    keep_base: list[str] = optional("patterns")
    heads: list[str] = optional("patterns")
    tokens: Literal["base", "union"] = optional("whose rows the embeddings have")
    layers: int = optional("how many blocks the models have")
    output: str = optional()
    scaling_coefficient: float = optional()
    k: int = optional()
    fit: bool = optional()
    entropy_coding: bool = optional()
    include_base: bool = optional()


KEYS = tuple(ModelsFile.model_fields)


def read_models_file(path: Path, base: str | None, dtypes: Collection[str]) -> dict[str, Any]:
    """What a file says, by the attributes of `given_checkpoints.Given`; a task is a mapping, as of `FileTask`.

    Args:
        path: the file.
        base: what counts in the place of the file's own base.
        dtypes: what may be stored.

    Raises:
        TallmasksError: it cannot be read, or a key or value is not what it may be.
    """
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        raise TallmasksError(f"{path}: no such file; expected a YAML file with {', '.join(KEYS)}") from None
    if not isinstance(content, dict):
        raise TallmasksError(f"{path}: found {shown(content)}, expected keys and values: {', '.join(KEYS)}")
    values = {str(key): value for key, value in content.items() if value is not None}
    if not values.keys().isdisjoint(MERGEKIT):
        values = in_own_words(values, path, base)
    check({**values, "options": values.get("options", {})}, ModelsFile, path)
    if values.get("dtype") not in (None, *dtypes):
        raise TallmasksError(f"{path}: dtype: found {values['dtype']}, expected one of {', '.join(dtypes)}")
    if (version := values.pop("tallmasks", __version__)) != __version__:
        warnings.warn(
            f"{path}: written by version {version}, and this is {__version__}: the last bits may differ",
            TallmasksWarning,
            stacklevel=2,
        )
    entries = values.get("tasks", {}).items()
    values["tasks"] = {name: {"checkpoint": entry} if isinstance(entry, str) else entry for name, entry in entries}
    return values
