"""The YAML file that `tallmasks merge` and `tallmasks compress` take in the place of options; mergekit's too."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tallmasks.plan.refusals import Section, check, optional, shown
from tallmasks.plan.strict_yaml import read_yaml
from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import expanded
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS, TORCH

MERGEKIT = {"base_model": "base", "merge_method": "method", "models": "tasks", "out": "output"}
"""What mergekit calls what here has another name."""
MERGEKIT_METHODS = {"linear": "weight_averaging"}
CHECKPOINT = "a path or a repository"


class FileTask(Section):
    checkpoint: str = Field(description=CHECKPOINT)
    mask_lambda: float = optional()


class MergekitParameters(Section):
    mask_lambda: float = optional()


class MergekitModel(Section):
    model: str = Field(description=CHECKPOINT)
    name: str = optional()
    parameters: MergekitParameters = optional()


class ModelsFile(Section):
    base: str = optional(CHECKPOINT)
    tasks: (
        dict[str, Annotated[str, Field(description=CHECKPOINT)] | FileTask]
        | list[Annotated[str, Field(description=CHECKPOINT)] | MergekitModel]
    ) = optional("checkpoints by task")
    method: str = optional()
    options: dict[str, Any] = optional("names and values")
    mask_lambda: float = optional()
    dtype: str = optional()
    output: str = optional()
    scaling_coefficient: float = optional()
    k: int = optional()
    fit: bool = optional()
    entropy_coding: bool = optional()
    include_base: bool = optional()


KEYS = tuple(ModelsFile.model_fields)


def read_models_file(path: Path, base: str | None, dtypes: Collection[str]) -> dict[str, Any]:
    """What a file says, by the attributes of `given_checkpoints.Given`.

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
    values: dict[str, Any] = {
        MERGEKIT.get(str(key), str(key)): value for key, value in content.items() if value is not None
    }
    parameters = values.pop("parameters", {})
    if not isinstance(parameters, dict):
        raise TallmasksError(f"{path}: parameters: found {shown(parameters)}, expected names and values")
    check({**values, "options": values.get("options", {})}, ModelsFile, path)
    general = {key: parameters.pop(key) for key in ("scaling_coefficient", "k", "mask_lambda") if key in parameters}
    check(general, ModelsFile, f"{path}: parameters")
    values = {**general, **values, "options": {**values.get("options", {}), **parameters}}
    if values.get("dtype") not in (None, *dtypes):
        raise TallmasksError(f"{path}: dtype: found {values['dtype']}, expected one of {', '.join(dtypes)}")
    if "method" in values:
        values["method"] = MERGEKIT_METHODS.get(values["method"], values["method"])
    tasks = values.get("tasks", {})
    if isinstance(tasks, list):
        tasks = _mergekit_tasks(tasks, path, base or values.get("base"))
    entries = {name: {"checkpoint": entry} if isinstance(entry, str) else entry for name, entry in tasks.items()}
    values["tasks"] = {name: entry["checkpoint"] for name, entry in entries.items()}
    values["mask_lambdas"] = {name: entry["mask_lambda"] for name, entry in entries.items() if "mask_lambda" in entry}
    return values


def _mergekit_tasks(models: list[Any], path: Path, base: str | None) -> dict[str, dict[str, Any]]:
    """`models` of mergekit as `tasks`; without the base, which mergekit's files may list too."""
    of_base = None if base is None else Path(expanded(base)).absolute()
    named: dict[str, dict[str, Any]] = {}
    for entry in models:
        entry = {"model": entry} if isinstance(entry, str) else entry
        model = entry["model"]
        if Path(expanded(model)).absolute() == of_base:
            continue
        last = Path(model.partition("@")[0])
        own = last.stem if last.suffix in (SAFETENSORS, *TORCH) else last.name  # a folder's may have dots
        name = entry.get("name", own)
        if name in named:
            raise TallmasksError(f"{path}: models: two are called {name}; give each a `name`")
        named[name] = {"checkpoint": model, **entry.get("parameters", {})}
    return named
