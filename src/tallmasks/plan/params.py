"""params.yaml: reading it, and refusing mistakes before anything is planned.

`params_model` checks keys, types and bounds, and `check_names` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallmasks import methods
from tallmasks.evaluation.subsets import ORDERS
from tallmasks.masks.mask_bundles import apply_mask
from tallmasks.models.families import family
from tallmasks.plan import params_model, refusals
from tallmasks.plan.yaml_files import read_yaml, scalar
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.tasks.catalogues import CATALOGUES, catalogue
from tallmasks.tasks.task import Task

Params = Mapping[str, Any]

FILE = Path("params.yaml")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of params.yaml: the tasks whose models are merged, and those of its tables, in their order."""

    merge: tuple[str, ...]
    evaluate: tuple[str, ...]

    @classmethod
    def of(cls, entry: Sequence[str] | Mapping[str, Sequence[str]]) -> Benchmark:
        """A list of tasks is merged and evaluated."""
        both = entry if isinstance(entry, Mapping) else {"merge": entry, "evaluate": entry}
        return cls(tuple(both["merge"]), tuple(both["evaluate"]))

    @property
    def unseen(self) -> bool:
        """Whether it evaluates other tasks than it merges, so that a row needs one model for all tasks."""
        return set(self.merge) != set(self.evaluate)

    @property
    def tasks(self) -> tuple[str, ...]:
        """All of its tasks, each once."""
        return tuple(dict.fromkeys(self.merge + self.evaluate))


def read(path: Path) -> dict[str, Any]:
    """The content of params.yaml, or of a file that overrides some of it.

    Raises TallmasksError where there is no such file, it is no YAML, or not keys with values.
    """
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        above = next((folder for folder in path.resolve().parents[1:] if (folder / path.name).exists()), None)
        where = f": cd {above}" if above else ""
        raise TallmasksError(f"{path}: no such file; run this in the project's folder{where}") from None
    if not isinstance(content, dict):
        raise TallmasksError(f"{path}: found {refusals.shown(content)}, expected keys with values")
    return content


def overridden(params: Params, other: Params) -> dict[str, Any]:
    """`params` with the values of `other` in their place, key by key where both hold mappings."""
    merged = dict(params)
    for key, value in other.items():
        inside = merged.get(key)
        if isinstance(value, Mapping):
            merged[key] = overridden(inside if isinstance(inside, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def from_command_line(value: Any) -> Any:
    """A value as `snakemake --config` passes it on; lists and mappings hold texts alone there."""
    if isinstance(value, Mapping):
        return {key: from_command_line(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [from_command_line(inside) for inside in value]
    return scalar(value) if isinstance(value, str) else value


def check(params: Params) -> None:
    """Raises TallmasksError where `params_model` does not allow a value, with its key and what is expected."""
    refusals.check(params, params_model.Params, FILE)


def bundled_row(params: Params) -> str:
    """The row that bundles hold, by the optional key `bundle`.

    Raises TallmasksError where it is no method with masks or own tensors.
    """
    row = methods.get(methods.spec_of(params.get("bundle", "tall_mask_ties")))
    if row.own_tensors is None and row.update is not apply_mask:
        masking = [name for name in methods.names() if methods.get(name).update is apply_mask]
        own = [name for name in methods.names() if methods.get(name).own_tensors]
        raise TallmasksError(
            f"{FILE}: bundle: found {row.name!r}, expected a masking row: {', '.join(masking)}; or {', '.join(own)}"
        )
    return row.name


def check_names(params: Params) -> None:
    """Raises TallmasksError where a name does not exist, or is there twice, with its key and the nearest one.

    One catalogue, of a model or shipped, must have all tasks of a benchmark.  No model needs to have them.
    """
    asked = [params["methods"]] if isinstance(params["methods"], str) else params["methods"]
    listed = [entry if isinstance(entry, str) else next(iter(entry)) for entry in asked]
    rows = [name.partition(":")[0] for name in listed]
    _check_names("methods", rows, (*methods.GROUPS, *methods.names()))
    declared = {name: Benchmark.of(entry) for name, entry in params["benchmarks"].items()}
    listed_once = {"methods": methods.specs_of(params["methods"])}
    for name, entry in params["benchmarks"].items():
        parts = {f".{part}": tasks for part, tasks in entry.items()} if isinstance(entry, Mapping) else {"": entry}
        listed_once |= {f"benchmarks.{name}{part}": tuple(tasks) for part, tasks in parts.items()}
    for key, names in listed_once.items():
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise TallmasksError(f"{FILE}: {key}: {', '.join(repeated)} listed twice; list each once")
    bundled_row(params)
    shown_benchmarks, orders = params["paper"]["benchmarks"], params["paper"]["subsets"]["orders"]
    _check_names("paper.subsets.methods", params["paper"]["subsets"]["methods"], methods.names())
    for name in params["paper"]["subsets"]["methods"]:
        if data := methods.data_behind(methods.get(name)):
            raise TallmasksError(
                f"{FILE}: paper.subsets.methods: {name} needs {data}, and figure 5 is made from task vectors alone; "
                "leave it out"
            )
    if shown_benchmarks != "all":
        _check_names("paper", shown_benchmarks, params["benchmarks"])
        if unseen := [name for name in shown_benchmarks if declared[name].unseen]:
            raise TallmasksError(
                f"{FILE}: paper.benchmarks: {', '.join(unseen)} evaluates other tasks than it merges, and figures show "
                "tasks' own models too; leave it out"
            )
    if orders != "all":
        _check_names("paper", orders, ORDERS)
    if taken := {"figures", "tables"} & params["benchmarks"].keys():
        raise TallmasksError(
            f"{FILE}: benchmarks: {', '.join(sorted(taken))}: results/<model>/ has a folder of that name "
            "already; give the benchmark another one"
        )
    for name in CATALOGUES:
        catalogue(name).check(params)
    downloaded = [task for one in map(catalogue, CATALOGUES) if not one.versioned for task in one.tasks({})]
    _check_names("data", params.get("data", {}), downloaded)
    for name, model in params["models"].items():
        _check_model(name, model, known_tasks(params, model))
    had = {name: known_tasks(params, model).keys() for name, model in params["models"].items()}
    used = {model["tasks"] for model in params["models"].values()}
    unused = {f"`tasks: {name}`": catalogue(name).tasks(params).keys() for name in CATALOGUES if name not in used}
    _check_tasks({f"benchmarks.{name}": one.tasks for name, one in declared.items()}, had | unused)


def known_tasks(params: Params, model: Params) -> Mapping[str, Task]:
    """The tasks that a model of params.yaml may have, those of the user's own too."""
    return catalogue(model["tasks"]).tasks(params)


def _check_names(key: str, names: Iterable[str], valid: Iterable[str]) -> None:
    for name in names:
        if name not in valid:
            raise TallmasksError(f"{FILE}: {key}: no {name!r}{nearest(name, valid)}; there is: {', '.join(valid)}")


def _check_model(name: str, model: Params, tasks: Mapping[str, Task]) -> None:
    checkpoints, wording = model.get("checkpoints"), model.get("wording")
    _check_names(f"models.{name}.wording", wording if isinstance(wording, Mapping) else (), tasks)
    for task in checkpoints.get("tasks", {}) if isinstance(checkpoints, Mapping) else ():
        if task not in tasks:
            raise TallmasksError(
                f"{FILE}: models.{name}.checkpoints.tasks: there is no task {task!r}{nearest(task, tasks)}"
            )
    family(model).check(name, model)


def _check_tasks(benchmarks: Mapping[str, Sequence[str]], tasks_of: Mapping[str, Iterable[str]]) -> None:
    """One model or catalogue must have all tasks of a benchmark."""
    every = list(dict.fromkeys(task for tasks in tasks_of.values() for task in tasks))
    for key, tasks in benchmarks.items():
        for task in tasks:
            if task not in every:
                raise TallmasksError(f"{FILE}: {key}: no model has a task {task!r}{nearest(task, every)}")
        lacking = {model: [task for task in tasks if task not in those] for model, those in tasks_of.items()}
        if all(lacking.values()):
            fewest = min(map(len, lacking.values()))  # a model of another catalogue would list nearly all of them
            near = (f"{model} has no {', '.join(these)}" for model, these in lacking.items() if len(these) == fewest)
            raise TallmasksError(f"{FILE}: {key}: no model has all of these tasks; {'; '.join(near)}")
