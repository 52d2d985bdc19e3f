"""Reads and checks params.yaml.  `params_model` defines keys, types and bounds; `check_params` also checks names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.evaluation.subsets import ORDERS
from reproduction.models.families import can_score, family
from reproduction.plan import params_model
from reproduction.tasks.catalogues import CATALOGUES, Params, catalogue
from reproduction.tasks.task import Task
from tallmasks import methods
from tallmasks.errors import TallmasksError, nearest, short
from tallmasks.io.validation import validated
from tallmasks.io.yaml_files import read_yaml, scalar
from tallmasks.methods import Masked
from tallmasks.methods.few_bits import PLAIN

FILE = Path("params.yaml")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of params.yaml: the tasks to merge, and the tasks to evaluate in the order of the tables."""

    merge: tuple[str, ...]
    evaluate: tuple[str, ...]

    @classmethod
    def of(cls, entry: Sequence[str] | Mapping[str, Sequence[str]]) -> Benchmark:
        both = entry if isinstance(entry, Mapping) else {"merge": entry, "evaluate": entry}
        return cls(tuple(both["merge"]), tuple(both["evaluate"]))

    @property
    def unseen(self) -> bool:
        """True if it evaluates other tasks than it merges; only rows with one model for all tasks can do that."""
        return set(self.merge) != set(self.evaluate)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.merge + self.evaluate))


def read_params(path: Path) -> dict[str, Any]:
    """Read params.yaml, or a file that overrides parts of it.

    Raises TallmasksError if the file is missing, is not YAML, or is not a mapping.
    """
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        raise TallmasksError(f"{path}: no such file; run this in the project's folder") from None
    if not isinstance(content, dict):
        raise TallmasksError(f"{path}: found {short(content)}, expected keys with values")
    return content


def overridden(params: Params, other: Params) -> dict[str, Any]:
    """`params` updated with `other`, recursively where both values are mappings."""
    merged = dict(params)
    for key, value in other.items():
        inside = merged.get(key)
        inner = inside if isinstance(inside, Mapping) else {}
        merged[key] = overridden(inner, value) if isinstance(value, Mapping) else value
    return merged


def from_command_line(config: Params) -> dict[str, Any]:
    """The settings of `snakemake --config`, with the strings inside lists and mappings parsed as YAML scalars.

    Raises TallmasksError for an unknown key.
    """
    keys = params_model.ParamsFile.model_fields
    if unknown := next((key for key in config if key not in keys), None):
        raise TallmasksError(f"--config: there is no key {short(unknown)}{nearest(str(unknown), keys)}")
    return {key: _typed(value) for key, value in config.items()}


def _typed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _typed(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_typed(inside) for inside in value]
    return scalar(value) if isinstance(value, str) else value


def bundled_row(params: Params) -> str:
    """The row stored in bundles (key `bundle`; default: stochastic_rounding).

    Raises TallmasksError if bundles cannot store the method. The store has task vectors, from which fine-tuned weights
    do not come back bit for bit, so `lossless` has no bundle here.
    """
    row = methods.get(methods.spec_of(params.get("bundle", "stochastic_rounding"), f"{FILE}: bundle:"))
    few_bits = isinstance(row.usage, Masked) and row.values.get("bits", PLAIN) != PLAIN
    if not few_bits and not (row.codec and row.codec.coding == "multiples"):
        expected = "stochastic_rounding, or a masking row with few bits, such as {tall_mask_ties: {bits: 3}}"
        raise refusal("bundle", f"found {row.name!r}, expected {expected}")
    return row.name


def known_tasks(params: Params, model: Params) -> Mapping[str, Task]:
    """All tasks of a model's catalogue, including the user's own."""
    tasks = catalogue(model["tasks"]).tasks(params)
    return {name: task for name, task in tasks.items() if can_score(model, task)}


def refusal(key: str, why: str) -> TallmasksError:
    return TallmasksError(f"{FILE}: {key}: {why}")


def _check_unquoted(key: str, value: Any) -> None:
    """Refuse texts that are numbers or booleans, which networks fail on or misread after the jobs have started."""
    if isinstance(value, Mapping | list):
        for name, inside in value.items() if isinstance(value, Mapping) else enumerate(value):
            _check_unquoted(f"{key}.{name}", inside)
    elif isinstance(value, str) and isinstance(scalar(value), int | float):
        raise refusal(key, f"found the text {value!r}; write it without quotes")


def check_params(params: Params) -> None:
    """Raises TallmasksError with the key for a value outside `params_model`, or an unknown or repeated name."""
    validated(params, params_model.ParamsFile, FILE)
    entries = [params["methods"]] if isinstance(params["methods"], str) else params["methods"]
    rows = [(entry if isinstance(entry, str) else next(iter(entry))).partition(":")[0] for entry in entries]
    _check_names("methods", rows, (*methods.GROUPS, *methods.names()))
    specs = methods.specs_of(params["methods"])
    if repeated := sorted({spec for spec in specs if specs.count(spec) > 1}):
        raise refusal("methods", f"{', '.join(repeated)} listed twice; list each once")
    bundled_row(params)
    used = {model["tasks"]: None for model in params["models"].values()}
    for name in dict.fromkeys((*CATALOGUES, *used)):
        catalogue(name).check(params)
    downloaded = [task for one in map(catalogue, CATALOGUES) if not one.versioned for task in one.tasks({})]
    own = {task for task, entry in params.get("data", {}).items() if not entry.keys().isdisjoint(("files", "images"))}
    _check_names("data", params.get("data", {}).keys() - own, downloaded)
    for name, model in params["models"].items():
        tasks, wording, checkpoints = known_tasks(params, model), model.get("wording"), model.get("checkpoints")
        _check_names(f"models.{name}.wording", wording if isinstance(wording, Mapping) else (), tasks)
        imported = checkpoints.get("tasks", ()) if isinstance(checkpoints, Mapping) else ()
        _check_names(f"models.{name}.checkpoints.tasks", imported, tasks)
        for key in ("architecture", "preprocess"):
            _check_unquoted(f"models.{name}.{key}", model.get(key))
        family(model).check(name, model)
    benchmarks = {name: Benchmark.of(entry) for name, entry in params["benchmarks"].items()}
    _check_paper(params["paper"], benchmarks)
    _check_folders("benchmarks", benchmarks)
    for name, model in params["models"].items():
        for benchmark, entry in model.get("benchmarks", {}).items():
            key = f"models.{name}.benchmarks.{benchmark}"
            _check_tasks(key, Benchmark.of(entry).tasks, {name: known_tasks(params, model)})
        _check_folders(f"models.{name}.benchmarks", model.get("benchmarks", {}))
    tasks_of = {name: known_tasks(params, model).keys() for name, model in params["models"].items()}
    tasks_of |= {f"`tasks: {name}`": catalogue(name).tasks(params).keys() for name in CATALOGUES if name not in used}
    for name, benchmark in benchmarks.items():
        _check_tasks(f"benchmarks.{name}", benchmark.tasks, tasks_of)


def _check_folders(key: str, benchmarks: Iterable[str]) -> None:
    if taken := {"figures", "report", "tables"} & set(benchmarks):
        why = "results/<model>/ has a folder of this name; choose another name"
        raise refusal(key, f"{', '.join(sorted(taken))}: {why}")


def _check_names(key: str, names: Iterable[str], valid: Iterable[str]) -> None:
    for name in names:
        if name not in valid:
            raise refusal(key, f"no {name!r}{nearest(name, valid)}; expected one of: {', '.join(valid)}")


def _check_paper(paper: Params, benchmarks: Mapping[str, Benchmark]) -> None:
    names, orders = paper["subsets"]["methods"], paper["subsets"]["orders"]
    _check_names("paper.subsets.orders", () if orders == "all" else orders, ORDERS)
    _check_names("paper.subsets.methods", names, methods.names())
    for name in names:
        if data := methods.statistics_behind(methods.get(name)):
            why = f"{name} needs {data.meaning}, but figure 5 uses only task vectors; remove it"
            raise refusal("paper.subsets.methods", why)
    named = () if paper["benchmarks"] == "all" else paper["benchmarks"]
    _check_names("paper.benchmarks", named, benchmarks)
    if unseen := ", ".join(name for name in named if benchmarks[name].unseen):
        why = "evaluates tasks that it does not merge, but figures also show single-task models; remove it"
        raise refusal("paper.benchmarks", f"{unseen} {why}")


def _check_tasks(key: str, tasks: Sequence[str], tasks_of: Mapping[str, Collection[str]]) -> None:
    """One model or catalogue must have all tasks of a benchmark."""
    known = list(dict.fromkeys(task for tasks in tasks_of.values() for task in tasks))
    if unknown := next((task for task in tasks if task not in known), None):
        raise refusal(key, f"no model has a task {unknown!r}{nearest(unknown, known)}")
    lacking = {model: [task for task in tasks if task not in those] for model, those in tasks_of.items()}
    if all(lacking.values()):
        model = min(lacking, key=lambda name: len(lacking[name]))
        raise refusal(key, f"no model has all of these tasks; {model} has no {', '.join(lacking[model])}")
