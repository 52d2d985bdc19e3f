"""Translate mergekit's YAML files into this package's settings.

Supports `base_model`, `merge_method`, `models` (a list of {model, name, parameters}), `parameters`, `dtype`,
`out_dtype`, and `slices` with one slice of all layers. A parameter must be one value for all tensors. If `models` lists
the base, it is skipped, except for `linear` with a weight. Files with weights get mergekit's defaults: density 1, TIES
trims each tensor separately, lambda 1.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tallmasks.errors import TallmasksError, short
from tallmasks.io.plain_files import expanded
from tallmasks.methods.registry import get, get_merge, names
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS, TORCH

MERGEKIT = {"base_model": "base", "merge_method": "method", "models": "tasks", "out": "output",
            "tokenizer_source": "tokens"}  # fmt: skip
"""This package's name of a setting, by mergekit's name."""
METHODS = {"linear": "weight_averaging", "dare_linear": "dare"}
_GENERAL = {"lambda": "scaling_coefficient", **{key: key for key in (
    "scaling_coefficient", "mask_lambda", "weight", "density", "trim", "normalize")}}  # fmt: skip
_FLAGS = {"normalize", "rescale", "int8_mask", "filter_wise"}


def translated(content: dict[str, Any], path: Path, base: str | None) -> dict[str, Any]:
    """Translate the content of a file; ``base`` overrides the file's base.

    Raises TallmasksError with the name of a setting that this package does not support.
    """
    content = _without_slices(content, path)
    values = {MERGEKIT.get(key, key): value for key, value in content.items() if key != "name"}  # only a label
    if "base" in values:
        values["base"] = _reference(values["base"], path, "base_model")
    if values.get("tokens", "base") not in ("base", "union"):
        raise TallmasksError(f"{path}: tokenizer_source: found {short(values['tokens'])}, expected base or union")
    if (dtype := values.pop("out_dtype", None)) is not None:
        values["dtype"] = dtype
    parameters = _parameters(values.pop("parameters", {}), path, "parameters")
    parameters.pop("int8_mask", None)  # changes mergekit's memory use, not its results
    general = {name: parameters.pop(key) for key, name in _GENERAL.items() if key in parameters}
    values = {**general, **values, "options": {**parameters, **_mapping(values.get("options", {}), path, "options")}}
    if isinstance(values.get("method"), str):
        values["method"] = METHODS.get(values["method"], values["method"])
    if isinstance(values.get("tasks"), list):
        with_base = values.get("method") == "weight_averaging"
        values["tasks"] = _tasks(values["tasks"], path, base or values.get("base"), with_base)
        # DELLA's epsilon is a parameter of each model in mergekit
        epsilons = [task.pop("epsilon", None) for task in values["tasks"].values()]
        if any(epsilon != epsilons[0] for epsilon in epsilons):
            raise TallmasksError(f"{path}: models: epsilon: found {epsilons}; expected the same for all models")
        if epsilons and epsilons[0] is not None:
            values["options"].setdefault("epsilon", epsilons[0])
    tasks = values["tasks"].values() if isinstance(values.get("tasks"), dict) else ()
    settings = [values, *(task for task in tasks if isinstance(task, dict))]
    if any("gamma" in one for one in (parameters, *settings)):
        raise TallmasksError(
            f"{path}: gamma: mergekit drops the largest values per tensor, this package per row; use `outliers: 0.01`"
        )
    is_known = str(values.get("method")).partition(":")[0] in names()
    merge = str(get(values["method"]).merge) if is_known else ""  # unknown methods are refused later
    sparsify = get_merge(merge).sparsify if merge else None
    rescales = sparsify == "drop"
    if (rescale := values["options"].pop("rescale", rescales)) != rescales:
        raise TallmasksError(f"{path}: parameters: rescale: found {short(rescale)}, expected {short(rescales)}")
    if merge == "sum":  # mergekit accepts a density here and ignores it
        for one in settings:
            one.pop("density", None)
    return {**_defaults(merge, sparsify, values), **values} if any("weight" in one for one in settings) else values


def _without_slices(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Replace a single slice of the first n layers of all models by `models` and `layers: n`."""
    if "slices" not in content:
        return content
    match content["slices"]:
        case [{"sources": [{"layer_range": [0, int(layers)]}, *_] as sources, **others}] if not others:
            if all(isinstance(one, dict) and one.get("layer_range") == [0, layers] for one in sources):
                models = [{key: value for key, value in one.items() if key != "layer_range"} for one in sources]
                rest = {key: value for key, value in content.items() if key != "slices"}
                return {**rest, "models": models, "layers": layers}
    raise TallmasksError(
        f"{path}: slices: stacking layers of several models is not supported; expected one slice of whole models"
    )


def _defaults(merge: str, sparsify: str | None, values: dict[str, Any]) -> dict[str, Any]:
    if sparsify is None:
        return {}
    defaults: dict[str, Any] = {} if sparsify in values["options"] else {"density": 1.0}
    if merge == "ties_mean":
        defaults["trim"] = "tensor"
    if merge == "dare_ties":
        values["options"].setdefault("keep", 1.0)
        defaults["normalize"] = False
    return defaults


def _tasks(models: list[Any], path: Path, base: Any, with_base: bool) -> dict[str, dict[str, Any]]:
    """Translate `models` into `tasks`. The base is kept only ``with_base`` and if it has a weight."""
    of_base = Path(expanded(base)).absolute() if isinstance(base, str) else None
    named: dict[str, dict[str, Any]] = {}
    for entry in models:
        entry = {"model": entry} if isinstance(entry, str) else _mapping(entry, path, "models")
        if unknown := sorted(map(str, entry.keys() - {"model", "name", "parameters"})):
            raise TallmasksError(f"{path}: models: there is no key {unknown[0]!r}; expected model, name, parameters")
        model = _reference(entry.get("model"), path, "models: model")
        parameters = _parameters(entry.get("parameters") or {}, path, f"models: {model}: parameters")
        if Path(expanded(model)).absolute() == of_base and not (with_base and "weight" in parameters):
            continue
        of, plus, lora = model.partition("+")
        if plus and not Path(expanded(model)).exists():  # mergekit's notation for a LoRA on a model
            if of != base:
                raise TallmasksError(
                    f"{path}: models: {model}: expected a LoRA of the base, {base}; merge the LoRA into its model first"
                )
            model = lora
        last = Path(model.partition("@")[0])
        default = last.stem if last.suffix in (SAFETENSORS, *TORCH) else last.name  # names of folders can have dots
        name = entry.get("name", default)
        if not isinstance(name, str):
            raise TallmasksError(f"{path}: models: name: found {short(name)}, expected a string")
        if name in named:
            raise TallmasksError(f"{path}: models: two models are called {name}; set `name` for each")
        named[name] = {**parameters, "checkpoint": model}
    return named


def _reference(value: Any, path: Path, where: str) -> str:
    """Translate a string, {path, revision}, or {model, lora} of two of these, into a value of base or tasks."""
    match value:
        case str():
            return value
        case {"path": str(name), **rest} if rest.keys() <= {"revision"}:
            return "@".join([name, *map(str, rest.values())])
        case {"model": model, **rest} if rest.keys() <= {"lora"}:
            return "+".join(_reference(part, path, where) for part in (model, *rest.values()))
    raise TallmasksError(f"{path}: {where}: found {short(value)}, expected a path or a repository")


def _parameters(value: Any, path: Path, where: str) -> dict[str, Any]:
    """Convert values like mergekit: "0.5" is a number, and for flags 1.0 is true."""
    parameters = dict(_mapping(value, path, where))
    for key, one in parameters.items():
        if isinstance(one, list | dict):
            raise TallmasksError(f"{path}: {where}: {key}: found {short(one)}; expected one value for all tensors")
        if isinstance(one, str) or key in _FLAGS:
            with suppress(ValueError):
                parameters[key] = TypeAdapter(bool if key in _FLAGS else float).validate_python(one)
    return parameters


def _mapping(value: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TallmasksError(f"{path}: {where}: found {short(value)}, expected keys and values")
    return value
