"""What the stages and the views read in params.yaml, and the artifacts that they have named of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tallmasks import methods
from tallmasks.errors import TallmasksError, nearest
from tallmasks.evaluation.subsets import ORDERS
from tallmasks.io.file_digests import named_path
from tallmasks.models.families import family, network_of
from tallmasks.plan.node import Node
from tallmasks.plan.params import Benchmark, Params, check_params, known_tasks
from tallmasks.tasks.task import Task


class Plan:
    """The settings of params.yaml as recipes have them.

    ``params``: the content of params.yaml; ``root``: the folder of relative paths in it;
    ``artifacts``: those that stages have given (`tallmasks.plan.node.Stage`).

    Raises TallmasksError as `check_params`.
    """

    def __init__(self, params: Params, root: Path | str = ".") -> None:
        self.params = params
        self.root = Path(root)
        self.artifacts: dict[Any, Node] = {}
        check_params(params)

    @property
    def models(self) -> Mapping[str, Params]:
        return self.params["models"]

    @property
    def method_names(self) -> tuple[str, ...]:
        """The rows of every table, in order: names of methods with their options."""
        return methods.specs_of(self.params["methods"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """Fine-tuning seeds; tables come from the first."""
        return tuple(self.params["seeds"])

    def model(self, name: str) -> Params:
        return self._entry("model", name)

    def _entry(self, kind: str, name: str) -> Any:
        known = self.params[f"{kind}s"]
        if name not in known:
            names = ", ".join(known)
            raise TallmasksError(f"no {kind} {name!r} in params.yaml{nearest(name, known)}; there is: {names}")
        return known[name]

    def resources(self, model: str, step: str) -> Mapping[str, int]:
        """Threads, gpu, mem_mb and runtime (minutes) of a kind of step, a key of the model's `resources`."""
        if model in self.models:
            return self.models[model]["resources"][step]
        (first, *_) = (spec for spec in self.models.values() if spec["tasks"] == model)
        return first["resources"][step]

    def pretraining(self, model: str) -> tuple[dict[str, Any], Path]:
        """The recipe and the path of the pretrained weights that ship with the project."""
        spec = self.model(model)
        params = {**self.architecture(model), "pretraining": dict(spec["pretraining"]), "tasks": spec["tasks"]}
        return {"kind": "pretrained", "params": params}, self.named_path(spec["pretrained"])

    def catalogue_of(self, model: str) -> Mapping[str, Task]:
        return known_tasks(self.params, self.model(model))

    def benchmark(self, benchmark: str) -> Benchmark:
        return Benchmark.of(self._entry("benchmark", benchmark))

    def tasks(self, benchmark: str) -> tuple[str, ...]:
        """The tasks of a benchmark's tables, in their order."""
        return self.benchmark(benchmark).evaluate

    def benchmarks(self, model: str) -> tuple[str, ...]:
        """The benchmarks whose tasks a model has, all of them."""
        available = self.catalogue_of(model).keys()
        return tuple(name for name in self.params["benchmarks"] if available >= set(self.benchmark(name).tasks))

    def tasks_for(self, model: str, benchmark: str) -> tuple[str, ...]:
        """As `tasks`.  Raises TallmasksError where the model lacks a task of the benchmark."""
        if benchmark not in self.benchmarks(model):
            available = self.catalogue_of(model)
            lacking = ", ".join(repr(task) for task in self.benchmark(benchmark).tasks if task not in available)
            able = ", ".join(name for name in self.models if benchmark in self.benchmarks(name))
            raise TallmasksError(
                f"results/{model}/{benchmark}: the model has no task {lacking}; "
                f"models that have all tasks of the benchmark: {able or 'none in params.yaml'}"
            )
        return self.tasks(benchmark)

    @staticmethod
    def members(tasks: Iterable[str]) -> tuple[str, ...]:
        """The set of tasks in its canonical order, as recipes have it."""
        return tuple(sorted(set(tasks)))

    def named_path(self, written: str) -> Path:
        return named_path(self.root, written)

    def architecture(self, model: str) -> dict[str, Any]:
        return network_of(self.model(model))

    def network(self, model: str) -> dict[str, Any]:
        """The settings of a job that gives examples to the network."""
        return self.architecture(model) | family(self.model(model)).settings(self.model(model))

    def evaluator(self, model: str) -> dict[str, Any]:
        """The settings of a job that counts right answers."""
        return self.network(model) | {"evaluation": dict(self.model(model)["evaluation"])}

    def grids(self, model: str) -> dict[str, list[float]]:
        """What is tried on validation data: the model's own grids, else those of all models."""
        return {**self.params["grids"], **self.model(model).get("grids", {})}

    def sweep_images(self, model: str, sweep: str) -> dict[str, int]:
        """How many examples one choice or accuracy of a sweep uses, by split; a split without a number uses all."""
        return dict(self.model(model).get("sweeps", {}).get(sweep, {}))

    @property
    def subset_orders(self) -> tuple[str, ...]:
        """The orders of tasks that figure 5 averages over."""
        listed = self.params["paper"]["subsets"]["orders"]
        return ORDERS if listed == "all" else tuple(listed)

    def paper_benchmarks(self, model: str) -> dict[str, tuple[str, ...]]:
        """The benchmarks that figures and tables show, with their tasks, the smallest first."""
        listed, able = self.params["paper"]["benchmarks"], self.benchmarks(model)
        shown = self.params["benchmarks"] if listed == "all" else listed
        usable = {name: self.tasks(name) for name in shown if name in able and not self.benchmark(name).unseen}
        return dict(sorted(usable.items(), key=lambda item: len(item[1])))
