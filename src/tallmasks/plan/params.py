"""params.yaml: reading it, and refusing what cannot be meant before anything is planned.

Three sieves, each with messages of one line: `strict_yaml` for what a file may hold at all, the schema
(workflow/schemas/params.schema.yaml) for keys, types and bounds, and `check_names` for names that must exist.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tallmasks import methods
from tallmasks.evaluation.subsets import ORDERS
from tallmasks.masks.mask_bundles import apply_mask
from tallmasks.models.families import family
from tallmasks.plan.strict_yaml import read_yaml, scalar
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.tasks.catalogues import CATALOGUES, catalogue
from tallmasks.tasks.task import Task

Params = Mapping[str, Any]

FILE = Path("params.yaml")
SCHEMA = Path("workflow", "schemas", "params.schema.yaml")


def read(path: Path) -> dict[str, Any]:
    """The content of params.yaml, or of a file that overrides some of it.

    Raises:
        TallmasksError: there is no such file, it is no YAML, or not keys with values.
    """
    try:
        found = read_yaml(path)
    except FileNotFoundError:
        above = next((folder for folder in path.resolve().parents[1:] if (folder / path.name).exists()), None)
        where = f": cd {above}" if above else ""
        raise TallmasksError(f"{path}: no such file; run this in the project's folder{where}") from None
    if not isinstance(found, dict):
        raise TallmasksError(f"{path}: found {shown(found)}, expected keys with values")
    return found


def overridden(params: Params, other: Params) -> dict[str, Any]:
    """`params` with the values of `other` in their place, key by key as far as both hold mappings."""
    found = dict(params)
    for key, value in other.items():
        inside = found.get(key)
        if isinstance(value, Mapping):
            found[key] = overridden(inside if isinstance(inside, Mapping) else {}, value)
        else:
            found[key] = value
    return found


def from_command_line(value: Any) -> Any:
    """A value as `snakemake --config` passes it on: what stands in lists and mappings there are texts alone."""
    if isinstance(value, Mapping):
        return {key: from_command_line(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [from_command_line(inside) for inside in value]
    return scalar(value) if isinstance(value, str) else value


# -- the schema -----------------------------------------------------------------------------------------------


def check(params: Params, root: Path = Path()) -> None:
    """Refuse what the schema of the project in the folder `root` does not allow.

    Stricter than JSON Schema in two things: 6.0 is no whole number, and a number is finite.

    Raises:
        TallmasksError: the key, what was found there and what is expected.
    """
    from jsonschema.exceptions import best_match

    error = best_match(_validator(root / SCHEMA).iter_errors(params))
    if error is not None:
        raise TallmasksError(_refusal(error))


@functools.cache
def _validator(schema: Path) -> Any:
    import yaml
    from jsonschema import Draft202012Validator, validators

    def whole(checker: Any, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def finite(checker: Any, value: Any) -> bool:
        return whole(checker, value) or (isinstance(value, float) and math.isfinite(value))

    types = Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": whole, "number": finite})
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(schema.read_text(), loader)  # a file of the project's own
    return validators.extend(Draft202012Validator, type_checker=types)(content)


def _refusal(error: Any) -> str:
    """What the schema has against a value, in one line: where, what was found, what is expected."""
    schema = error.schema if isinstance(error.schema, dict) else {}
    path = list(error.absolute_path)
    where = "".join(f"{key}: " for key in [".".join(map(str, path))] if key)
    known = schema.get("properties", {})
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        unknown = next(str(key) for key in error.instance if key not in known)
        hint = nearest(unknown, known)
        return f"{FILE}: {where}there is no key {shown(unknown)}; known here: {', '.join(known)}{hint}"
    if error.validator == "required":
        absent = [key for key in error.validator_value if key not in error.instance]
        return f"{FILE}: {where}{', '.join(absent)}: not there, and there is no default; add it"
    expected = _expected(schema) or str(error.validator)
    if "propertyNames" in error.absolute_schema_path:
        return f"{FILE}: {where}found the name {shown(error.instance)}, expected {expected}"
    return f"{FILE}: {where}found {shown(error.instance)}, expected {expected}{_spelling(error.instance, schema)}"


_KINDS = {
    "integer": "a whole number",
    "number": "a finite number",
    "string": "a text",
    "array": "a list",
    "object": "keys with values",
    "boolean": "true or false",
    "null": "nothing",
}


def _expected(schema: Mapping[str, Any]) -> str:
    """What a part of the schema allows, in words."""
    if "enum" in schema:
        words = f"one of {', '.join(map(str, schema['enum']))}"
    elif "const" in schema:
        words = str(schema["const"])
    else:
        types = schema.get("type", [])
        words = " or ".join(_KINDS[name] for name in ([types] if isinstance(types, str) else types))
    bounds = [
        f"{word} {schema[key]}"
        for word, key in (
            ("from", "minimum"),
            ("above", "exclusiveMinimum"),
            ("to", "maximum"),
            ("below", "exclusiveMaximum"),
        )
        if key in schema
    ]
    if "minItems" in schema:
        bounds.append(f"of {schema['minItems']} to {schema.get('maxItems', 'any number of')} entries")
    if schema.get("uniqueItems"):
        bounds.append("that are all different")
    words = " ".join([words, *bounds]) if words else ""
    described = schema.get("description", "")
    return f"{words} ({described})" if words and described else words or described


def _spelling(value: Any, schema: Mapping[str, Any]) -> str:
    """A hint where a text stands in the place of a number and would be one in another spelling."""
    wanted = {"integer", "number"} & set([schema.get("type")] if isinstance(schema.get("type"), str) else [])
    if not isinstance(value, str) or not wanted:
        return ""
    try:
        if not math.isfinite(float(value)):
            return ""
    except ValueError:
        return ""
    mantissa, _, exponent = value.strip().lower().replace("_", "").partition("e")
    if "number" in wanted and exponent:
        mantissa += "" if "." in mantissa else ".0"
        exponent = exponent if exponent[0] in "+-" else f"+{exponent}"
        return f"; YAML reads a number with an exponent only in this spelling: {mantissa}e{exponent}"
    return "; write the number without quotation marks"


def shown(value: Any) -> str:
    """A value as it is named in a message: short, and in one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 80:
        return "a whole number of more than 24 digits"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' * (value < 0)}.inf"
    if isinstance(value, Mapping):
        return "keys with values" if value else "an empty mapping"
    if isinstance(value, list) and any(isinstance(inside, (list, Mapping)) for inside in value):
        return f"a list of {len(value)}"
    text = f"[{', '.join(map(shown, value[:20]))}]" if isinstance(value, list) else repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


# -- names ----------------------------------------------------------------------------------------------------


def method_names(params: Params) -> tuple[str, ...]:
    """The rows of every table, in their order: names of methods, with what is set of their options behind them."""
    return methods.specs_of(params["methods"])


def bundled_row(params: Params) -> str:
    """The row that bundles hold, by the optional key `bundle`.

    Raises:
        TallmasksError: there is no such method, or its models are neither those of a merged vector under masks nor of
            tensors that are compressed one by one.
    """
    found = methods.get(methods.spec_of(params.get("bundle", "tall_mask_ties")))
    if found.own_tensors is None and (found.protocol != "masked" or found.update is not apply_mask):
        known = [name for name in methods.names() if methods.get(name).update is apply_mask]
        own = [name for name in methods.names() if methods.get(name).own_tensors]
        raise TallmasksError(
            f"{FILE}: bundle: found {found.name!r}, expected a masking row: {', '.join(known)}; or {', '.join(own)}"
        )
    return found.name


def check_names(params: Params) -> None:
    """Refuse a name that does not exist, or that is there twice.

    A benchmark belongs to a catalogue that has all its tasks: one of the models', or one that ships with the package,
    so that a model can be taken out of params.yaml alone.  Which models have it, is asked when its results are.

    Raises:
        TallmasksError: the key, the name, and the nearest one that exists.
    """
    asked = [params["methods"]] if isinstance(params["methods"], str) else params["methods"]
    listed = [entry if isinstance(entry, str) else next(iter(entry)) for entry in asked]
    rows = [name.partition(":")[0] for name in listed]
    known = (*methods.GROUPS, *methods.names(), *filter(methods.followed, rows))
    _check_names("methods", rows, known)
    benchmarks = {f"benchmarks.{name}": list(tasks) for name, tasks in params["benchmarks"].items()}
    for key, names in {"methods": list(method_names(params)), **benchmarks}.items():
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise TallmasksError(f"{FILE}: {key}: {', '.join(repeated)} listed twice; list each once")
    bundled_row(params)
    shown_benchmarks, orders = params["paper"]["benchmarks"], params["paper"]["subsets"]["orders"]
    _check_names("paper.subsets.methods", params["paper"]["subsets"]["methods"], methods.names())
    for name in params["paper"]["subsets"]["methods"]:
        if statistic := methods.statistics_behind(methods.get(name)):
            raise TallmasksError(
                f"{FILE}: paper.subsets.methods: {name} needs data statistics (stage {statistic}), and figure 5 is "
                "made from task vectors alone; leave it out"
            )
    if shown_benchmarks != "all":
        _check_names("paper", shown_benchmarks, params["benchmarks"])
    if orders != "all":
        _check_names("paper", orders, ORDERS)
    if taken := {"figures", "tables"} & params["benchmarks"].keys():
        raise TallmasksError(
            f"{FILE}: benchmarks: {', '.join(sorted(taken))}: results/<model>/ has a folder of that name "
            "already; give the benchmark another one"
        )
    for key, grid in params["grids"].items():
        if list(grid) != sorted(set(grid)):
            raise TallmasksError(
                f"{FILE}: grids.{key}: found {list(grid)}, expected different values in ascending order"
            )
    for name in CATALOGUES:
        catalogue(name).check(params)
    _check_names("data", params.get("data", {}), _downloaded_tasks())
    for name, model in params["models"].items():
        _check_model(name, model, known_tasks(params, model))
    had = {name: known_tasks(params, model).keys() for name, model in params["models"].items()}
    used = {model["tasks"] for model in params["models"].values()}
    unused = {f"`tasks: {name}`": catalogue(name).tasks(params).keys() for name in CATALOGUES if name not in used}
    _check_tasks(benchmarks, had | unused)


def known_tasks(params: Params, model: Params) -> Mapping[str, Task]:
    """The tasks that a model of params.yaml may have, its own ones among them."""
    return catalogue(model["tasks"]).tasks(params)


def _downloaded_tasks() -> list[str]:
    """The tasks whose data may be had from a local folder instead of the hub."""
    catalogues = map(catalogue, CATALOGUES)
    return [task for known in catalogues if not known.versioned for task in known.tasks({})]


def _check_names(key: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise TallmasksError(f"{FILE}: {key}: no {name!r}{nearest(name, known)}; there is: {', '.join(known)}")


def _check_model(name: str, model: Params, known: Mapping[str, Task]) -> None:
    checkpoints, wording = model.get("checkpoints"), model.get("wording")
    _check_names(f"models.{name}.wording", wording if isinstance(wording, Mapping) else (), known)
    for task in checkpoints.get("tasks", {}) if isinstance(checkpoints, Mapping) else ():
        if task not in known:
            raise TallmasksError(
                f"{FILE}: models.{name}.checkpoints.tasks: there is no task {task!r}{nearest(task, known)}"
            )
    finetuning = model["finetuning"]
    if "patience" in finetuning and "validate_every" not in finetuning:
        raise TallmasksError(
            f"{FILE}: models.{name}.finetuning.patience: counts looks at the validation data, and validate_every, "
            "which says how many steps lie between two, is not there; add it, or take patience away"
        )
    family(model).check(name, model)


def _check_tasks(benchmarks: Mapping[str, list[str]], known: Mapping[str, Iterable[str]]) -> None:
    """Every task of a benchmark must be one of some model's or catalogue's, and all of them of the same."""
    every = list(dict.fromkeys(task for tasks in known.values() for task in tasks))
    for key, tasks in benchmarks.items():
        for task in tasks:
            if task not in every:
                raise TallmasksError(f"{FILE}: {key}: no model has a task {task!r}{nearest(task, every)}")
        lacking = {model: [task for task in tasks if task not in those] for model, those in known.items()}
        if all(lacking.values()):
            fewest = min(map(len, lacking.values()))  # a model of another catalogue would list nearly all of them
            near = (f"{model} has no {', '.join(these)}" for model, these in lacking.items() if len(these) == fewest)
            raise TallmasksError(f"{FILE}: {key}: no model has all of these tasks; {'; '.join(near)}")
