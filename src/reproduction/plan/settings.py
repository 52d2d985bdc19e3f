"""The settings of params.yaml in the form that stages and views use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reproduction.evaluation.subsets import ORDERS
from reproduction.models.families import family, network_of
from reproduction.plan.node import Node
from reproduction.plan.params import Benchmark, Params, check_params, known_tasks
from reproduction.tasks.task import Task
from tallmasks import methods
from tallmasks.errors import TallmasksError, nearest
from tallmasks.io.file_digests import named_path

COMPARED = "mine"
"""The model in the files that `tallmasks compare` writes."""


class Plan:
    """The settings of params.yaml, and a cache of the nodes that stages have created.

    ``root``: the folder that relative paths in params.yaml start from.  Raises TallmasksError as `check_params`.
    """

    def __init__(self, params: Params, root: Path | str = ".") -> None:
        self.params = params
        self.root = Path(root)
        self.nodes: dict[Any, Node] = {}
        check_params(params)

    @property
    def models(self) -> Mapping[str, Params]:
        return self.params["models"]

    @property
    def method_names(self) -> tuple[str, ...]:
        """The rows of every table, in order: names with options."""
        return methods.specs_of(self.params["methods"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """Fine-tuning seeds; tables come from the first."""
        return tuple(self.params["seeds"])

    def model(self, name: str) -> Params:
        return self._entry("model", name)

    def _entry(self, kind: str, name: str) -> Any:
        entries = self.params[f"{kind}s"]
        if name not in entries:
            names = ", ".join(entries)
            near = nearest(name, entries)
            if (kind, name) == ("model", COMPARED):
                near = "; it is in the file that `tallmasks compare` wrote: use `snakemake --configfile FILE.yaml`"
            raise TallmasksError(f"no {kind} {name!r} in params.yaml{near}; expected one of: {names}")
        return entries[name]

    def resources(self, model: str, step: str) -> Mapping[str, int]:
        """Threads, gpu, mem_mb and runtime (minutes); ``step``: a key of `resources`.

        ``model`` can also be a catalogue: its examples use the resources of the first model with its tasks.
        """
        spec = self.models.get(model) or next(spec for spec in self.models.values() if spec["tasks"] == model)
        return spec["resources"][step]

    def catalogue_of(self, model: str) -> Mapping[str, Task]:
        return known_tasks(self.params, self.model(model))

    def _benchmarks_of(self, model: str) -> dict[str, Any]:
        """The entries of all benchmarks; a model's own replace the general ones."""
        return {**self.params["benchmarks"], **self.model(model).get("benchmarks", {})}

    def benchmark(self, model: str, benchmark: str) -> Benchmark:
        entries = self._benchmarks_of(model)
        return Benchmark.of(entries[benchmark] if benchmark in entries else self._entry("benchmark", benchmark))

    def tasks(self, model: str, benchmark: str) -> tuple[str, ...]:
        """The evaluated tasks, in the order of the tables."""
        return self.benchmark(model, benchmark).evaluate

    def benchmarks(self, model: str) -> tuple[str, ...]:
        """The benchmarks for which a model has all tasks."""
        available = self.catalogue_of(model).keys()
        return tuple(name for name in self._benchmarks_of(model) if available >= set(self.benchmark(model, name).tasks))

    def tasks_for(self, model: str, benchmark: str) -> tuple[str, ...]:
        """As `tasks`.  Raises TallmasksError if the model lacks a task of the benchmark."""
        if benchmark not in self.benchmarks(model):
            available = self.catalogue_of(model)
            lacking = ", ".join(repr(task) for task in self.benchmark(model, benchmark).tasks if task not in available)
            able = ", ".join(name for name in self.models if benchmark in self.benchmarks(name))
            raise TallmasksError(
                f"results/{model}/{benchmark}: the model has no task {lacking}; "
                f"models that have all tasks of the benchmark: {able or 'none in params.yaml'}"
            )
        return self.tasks(model, benchmark)

    @staticmethod
    def members(tasks: Iterable[str]) -> tuple[str, ...]:
        """The distinct tasks in the order that recipes use."""
        return tuple(sorted(set(tasks)))

    def named_path(self, path: str) -> Path:
        return named_path(self.root, path)

    def architecture(self, model: str) -> dict[str, Any]:
        return network_of(self.model(model))

    def network(self, model: str) -> dict[str, Any]:
        """The settings of a job that runs the network."""
        return self.architecture(model) | family(self.model(model)).settings(self.model(model))

    def evaluator(self, model: str) -> dict[str, Any]:
        """The settings of a job that computes accuracies."""
        return self.network(model) | {"evaluation": dict(self.model(model)["evaluation"])}

    def grids(self, model: str) -> dict[str, list[float]]:
        """The values to try on validation data; a model's own grids replace the general ones."""
        return {**self.params["grids"], **self.model(model).get("grids", {})}

    def sweep_images(self, model: str, sweep: str | None) -> dict[str, int]:
        """The number of examples per value of a sweep, by split; a missing split uses all examples."""
        return dict(self.model(model).get("sweeps", {}).get(sweep, {}))

    @property
    def subset_orders(self) -> tuple[str, ...]:
        """The task orders that figure 5 averages over."""
        listed = self.params["paper"]["subsets"]["orders"]
        return ORDERS if listed == "all" else tuple(listed)

    def paper_benchmarks(self, model: str) -> dict[str, tuple[str, ...]]:
        """The benchmarks shown in figures and tables with their tasks, smallest first."""
        listed, of_model = self.params["paper"]["benchmarks"], self.benchmarks(model)
        names = of_model if listed == "all" else tuple(name for name in listed if name in of_model)
        usable = {name: self.tasks(model, name) for name in names if not self.benchmark(model, name).unseen}
        return dict(sorted(usable.items(), key=lambda item: len(item[1])))
