"""Parameters to recipes to paths: what has to be made, from what, and where it lies.

Every artifact is a `Node`.  Its path has a digest of everything that decides its content: kind, stage version,
parameters, inputs and source files.  So a file that exists is up to date, and a parameter that is set back finds the
old artifact.  Two benchmarks with the same tasks share everything.

Nothing is read but the parameters, their source files and, for figure 5, the orders of the tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tallmasks import methods
from tallmasks.evaluation.records import read_orders
from tallmasks.evaluation.subsets import ORDERS, Subset, subsets
from tallmasks.models.families import family, network_of
from tallmasks.plan.chain import Seed
from tallmasks.plan.index import Index
from tallmasks.plan.node import STAGES, Node
from tallmasks.plan.params import Benchmark, Params, bundled_row, check_names, known_tasks
from tallmasks.store.artifacts import Damaged
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.source_digests import named_path
from tallmasks.tasks.task import Task
from tallmasks.training.controlled import Controlled


class Plan:
    """The artifacts that `params` ask for.

    `plan.<stage>(model, ...)` is an artifact of a stage of `tallmasks.plan.chain`; the same arguments give the same
    `Node` object.  `plan.index` has artifacts by name.

    ``params``: the content of params.yaml, valid under its schema; ``root``: the folder of relative paths in it.

    Raises TallmasksError as `check_names`.
    """

    def __init__(self, params: Params, root: Path | str = ".") -> None:
        self.params = params
        self.root = Path(root)
        self.index = Index(self)
        check_names(params)

    def __getattr__(self, name: str) -> Callable[..., Node]:
        """The nodes of a stage."""
        if name not in STAGES:
            raise AttributeError(f"a plan has neither an attribute nor a stage {name!r}")
        stage = STAGES[name]

        @functools.cache
        def node(model: str, *which: Any, **options: Any) -> Node:
            made = stage.declare(self, model, *which, **options)
            if isinstance(made, Node):  # of another stage
                return made
            artifact = Node.of(stage, model, made)
            self.index.add(artifact)
            return artifact

        setattr(self, name, node)
        return node

    # -- params.yaml --------------------------------------------------------------------------------------

    @property
    def models(self) -> Mapping[str, Params]:
        return self.params["models"]

    @property
    def method_names(self) -> tuple[str, ...]:
        """The rows of every table, in order: names of methods with their options."""
        return methods.specs_of(self.params["methods"])

    @property
    def bundled_row(self) -> str:
        return bundled_row(self.params)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Fine-tuning seeds; tables come from the first."""
        return tuple(self.params["seeds"])

    def model(self, name: str) -> Params:
        if name not in self.models:
            raise TallmasksError(
                f"no model {name!r} in params.yaml{nearest(name, self.models)}; models: {', '.join(self.models)}"
            )
        return self.models[name]

    def resources(self, model: str, step: str) -> Mapping[str, int]:
        """Threads, gpu, mem_mb and runtime (minutes) of a kind of step: "arrays", "evaluation" or "finetuning"."""
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
        benchmarks = self.params["benchmarks"]
        if benchmark not in benchmarks:
            raise TallmasksError(
                f"no benchmark {benchmark!r} in params.yaml{nearest(benchmark, benchmarks)}; benchmarks: "
                f"{', '.join(benchmarks)}; add one as a name and a list of tasks"
            )
        return Benchmark.of(benchmarks[benchmark])

    def tasks(self, benchmark: str) -> tuple[str, ...]:
        """The tasks of a benchmark's tables, in their order."""
        return self.benchmark(benchmark).evaluate

    def benchmarks(self, model: str) -> tuple[str, ...]:
        """The benchmarks whose tasks a model has, all of them."""
        available = self.catalogue_of(model).keys()
        return tuple(name for name in self.params["benchmarks"] if available >= set(self.benchmark(name).tasks))

    def tasks_for(self, model: str, benchmark: str) -> tuple[str, ...]:
        """As `tasks`.  Raises TallmasksError where the model lacks a task of the benchmark."""
        tasks = self.benchmark(benchmark).tasks
        if benchmark not in self.benchmarks(model):
            available = self.catalogue_of(model)
            able = [name for name in self.models if benchmark in self.benchmarks(name)]
            raise TallmasksError(
                f"results/{model}/{benchmark}: the model has no task "
                f"{', '.join(repr(task) for task in tasks if task not in available)}; "
                f"models that have all tasks of the benchmark: {', '.join(able) or 'none in params.yaml'}"
            )
        return self.tasks(benchmark)

    @staticmethod
    def members(tasks: Iterable[str]) -> tuple[str, ...]:
        """The set of tasks in its canonical order, as recipes have it."""
        return tuple(sorted(set(tasks)))

    def named_path(self, written: str) -> Path:
        return named_path(self.root, written)

    # -- a model in recipes -------------------------------------------------------------------------------

    def architecture(self, model: str) -> dict[str, Any]:
        return network_of(self.model(model))

    def training(self, model: str, task: str) -> dict[str, Any]:
        """The settings of a job that fine-tunes the network on a task."""
        spec = self.model(model)
        looks = "validate_every" in spec["finetuning"]
        settings = family(spec).training_settings(spec, self.catalogue_of(model)[task], looks)
        return self.architecture(model) | settings | {"finetuning": dict(spec["finetuning"])}

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

    def pretrained_source(self, model: str) -> dict[str, Path | Node]:
        """A model's pretrained weights by role: a file in the project's format, or the converted artifact."""
        named = self.model(model)["pretrained"]
        if isinstance(named, str) and named.endswith(".safetensors"):
            return {"pretrained": self.named_path(named)}
        return {"pretrained": self.pretrained(model)}

    def task_inputs(self, model: str, task: str) -> dict[str, list[Node]]:
        """A task's inputs beside its examples, by role, as the model's family needs them."""
        stages = family(self.model(model)).task_inputs
        return {role: [getattr(self, stage)(model, task)] for role, stage in stages.items()}

    def inputs_of_tasks(self, model: str, tasks: Iterable[str]) -> dict[str, list[Node]]:
        """The same for several tasks, each role in the plural."""
        stages = family(self.model(model)).task_inputs
        return {f"{role}s": [getattr(self, stage)(model, task) for task in tasks] for role, stage in stages.items()}

    def task_vectors(self, model: str, tasks: Iterable[str], seed: Seed) -> list[Node]:
        return [self.task_vector(model, task, seed) for task in tasks]

    # -- the paper's figures ------------------------------------------------------------------------------

    def subsets(self, model: str, benchmark: str) -> list[tuple[Subset, Node]] | None:
        """Figure 5's subsets of a benchmark, each once; None before zero-shot accuracies are there."""
        path = self.root / self.task_orders(model, self.members(self.tasks(benchmark))).path
        try:
            ordered, _ = read_orders(path)
        except (FileNotFoundError, Damaged):
            return None
        chosen = {order: ordered[order] for order in self.subset_orders}
        return [(subset, self.subset_evaluation(model, subset.tasks, self.seeds[0])) for subset in subsets(chosen)]

    @property
    def subset_orders(self) -> tuple[str, ...]:
        """The orders of tasks that figure 5 averages over."""
        listed = self.params["paper"]["subsets"]["orders"]
        return ORDERS if listed == "all" else tuple(listed)

    def controlled(self, benchmark: str) -> Controlled:
        """The seed and the partition of the controlled experiment on a benchmark (table 1)."""
        return Controlled(self.seeds[0], self.members(self.tasks(benchmark)))

    def paper_benchmarks(self, model: str) -> dict[str, tuple[str, ...]]:
        """The benchmarks that figures and tables show, with their tasks, the smallest first."""
        listed = self.params["paper"]["benchmarks"]
        able = set(self.benchmarks(model))
        shown = self.params["benchmarks"] if listed == "all" else listed
        usable = {name: self.tasks(name) for name in shown if name in able and not self.benchmark(name).unseen}
        return dict(sorted(usable.items(), key=lambda item: len(item[1])))
