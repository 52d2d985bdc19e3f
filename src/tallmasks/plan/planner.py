"""Parameters to recipes to paths: what has to be made, from what, and where it lies.

Every artifact is a `Node`.  Its digest is a function of what it is made *from* (kind, stage version, parameters,
digests of its inputs, sha256 of source files), never of who asked for it (a benchmark's name) nor of when (file
times).  Its path carries the digest, so "the file exists" means "it is up to date", a parameter set back to an old
value finds the old artifact again, and two benchmarks with the same members share everything.

Pure: no Snakemake, no DVC, no torch; nothing is read but the parameters, the source files that they name and, for
figure 5, the orders of the tasks where they are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tallmasks.evaluation.records import read_orders
from tallmasks.evaluation.subsets import ORDERS, Subset, subsets
from tallmasks.models.families import family, network_of
from tallmasks.plan.chain import Seed
from tallmasks.plan.index import Index
from tallmasks.plan.node import STAGES, Node
from tallmasks.plan.params import Params, bundled_row, check_names, known_tasks, method_names
from tallmasks.store.artifacts import Damaged
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.source_digests import named_path
from tallmasks.tasks.task import Task
from tallmasks.training.controlled import Controlled


class Plan:
    """What `params` ask for.

    `plan.<stage>(model, ...)` is an artifact of that stage, as `tallmasks.plan.chain` declares it; the same arguments
    give the same `Node` object.  `plan.index` finds artifacts by their names.

    Args:
        params: the content of params.yaml, already valid under its schema.
        root: the folder that relative paths in `params` are relative to.

    Raises TallmasksError where `params` name a task, method, model or benchmark that does not exist, or one twice.
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
        def node(model: str, *which: Any) -> Node:
            made = stage.declare(self, model, *which)
            if isinstance(made, Node):  # of another stage
                return made
            found = Node.of(stage, model, made)
            self.index.add(found)
            return found

        setattr(self, name, node)
        return node

    # -- what params.yaml declares ------------------------------------------------------------------------

    @property
    def models(self) -> Mapping[str, Params]:
        return self.params["models"]

    @property
    def method_names(self) -> tuple[str, ...]:
        """The rows of every table, in their order."""
        return method_names(self.params)

    @property
    def bundled_row(self) -> str:
        """The row of the tables that bundles hold."""
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
        """The recipe of the pretrained weights that ship with the project, and where they lie."""
        spec = self.model(model)
        params = {**self.architecture(model), "pretraining": dict(spec["pretraining"]), "tasks": spec["tasks"]}
        return {"kind": "pretrained", "params": params}, self.named_path(spec["pretrained"])

    def catalogue_of(self, model: str) -> Mapping[str, Task]:
        """The tasks that a model may have, those of params.yaml's own among them."""
        return known_tasks(self.params, self.model(model))

    def tasks(self, benchmark: str) -> tuple[str, ...]:
        """The tasks of a benchmark in the order in which people read them."""
        benchmarks = self.params["benchmarks"]
        if benchmark not in benchmarks:
            raise TallmasksError(
                f"no benchmark {benchmark!r} in params.yaml{nearest(benchmark, benchmarks)}; benchmarks: "
                f"{', '.join(benchmarks)}; add one as a name and a list of tasks"
            )
        return tuple(benchmarks[benchmark])

    def benchmarks(self, model: str) -> tuple[str, ...]:
        """The benchmarks whose tasks a model has, each and every one."""
        known = self.catalogue_of(model).keys()
        return tuple(name for name, tasks in self.params["benchmarks"].items() if known >= set(tasks))

    def tasks_for(self, model: str, benchmark: str) -> tuple[str, ...]:
        """The tasks of a benchmark.

        Raises TallmasksError where the model has not all of them.
        """
        tasks = self.tasks(benchmark)
        if benchmark not in self.benchmarks(model):
            known = self.catalogue_of(model)
            able = [name for name in self.models if benchmark in self.benchmarks(name)]
            raise TallmasksError(
                f"results/{model}/{benchmark}: the model has no task "
                f"{', '.join(repr(task) for task in tasks if task not in known)}; "
                f"models that have all tasks of the benchmark: {', '.join(able) or 'none in params.yaml'}"
            )
        return tasks

    @staticmethod
    def members(tasks: Iterable[str]) -> tuple[str, ...]:
        """The *set* of tasks in its one canonical order: what a recipe sees of a benchmark."""
        return tuple(sorted(set(tasks)))

    def named_path(self, written: str) -> Path:
        """A path as params.yaml has it."""
        return named_path(self.root, written)

    # -- what recipes hold of a model ---------------------------------------------------------------------

    def architecture(self, model: str) -> dict[str, Any]:
        return network_of(self.model(model))

    def training(self, model: str, task: str) -> dict[str, Any]:
        """What a job must know that fine-tunes the network on a task."""
        spec = self.model(model)
        looks = "validate_every" in spec["finetuning"]
        settings = family(spec).training_settings(spec, self.catalogue_of(model)[task], looks)
        return self.architecture(model) | settings | {"finetuning": dict(spec["finetuning"])}

    def network(self, model: str) -> dict[str, Any]:
        """What a job must know that gives examples to the network."""
        return self.architecture(model) | family(self.model(model)).settings(self.model(model))

    def evaluator(self, model: str) -> dict[str, Any]:
        """What a job must know that counts right answers."""
        return self.network(model) | {"evaluation": dict(self.model(model)["evaluation"])}

    def sweep_images(self, model: str, sweep: str) -> dict[str, int]:
        """How many examples are behind one choice or one accuracy of a sweep, by split; all where nothing is said."""
        return dict(self.model(model).get("sweeps", {}).get(sweep, {}))

    def pretrained_source(self, model: str) -> dict[str, Path | Node]:
        """A model's pretrained weights, by role: a file of the project's, or what is converted from another or from
        the hub."""
        named = self.model(model)["pretrained"]
        if isinstance(named, str) and named.endswith(".safetensors"):
            return {"pretrained": self.named_path(named)}
        return {"pretrained": self.pretrained(model)}

    def task_inputs(self, model: str, task: str) -> dict[str, list[Node]]:
        """What the model's family needs of a task beside its examples, by role."""
        wanted = family(self.model(model)).task_inputs
        return {role: [getattr(self, stage)(model, task)] for role, stage in wanted.items()}

    def inputs_of_tasks(self, model: str, tasks: Iterable[str]) -> dict[str, list[Node]]:
        """The same of several tasks, each role in the plural."""
        wanted = family(self.model(model)).task_inputs
        return {f"{role}s": [getattr(self, stage)(model, task) for task in tasks] for role, stage in wanted.items()}

    def task_vectors(self, model: str, tasks: Iterable[str], seed: Seed) -> list[Node]:
        return [self.task_vector(model, task, seed) for task in tasks]

    # -- the paper's figures ------------------------------------------------------------------------------

    def subsets(self, model: str, benchmark: str) -> list[tuple[Subset, Node]] | None:
        """Figure 5's subsets of a benchmark, each once; None as long as the zero-shot accuracies are not known."""
        path = self.root / self.task_orders(model, self.members(self.tasks(benchmark))).path
        try:
            ordered, _ = read_orders(path)
        except (FileNotFoundError, Damaged):
            return None
        found = subsets({order: ordered[order] for order in self.subset_orders})
        return [(subset, self.subset_evaluation(model, subset.tasks, self.seeds[0])) for subset in found]

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
        usable = {name: self.tasks(name) for name in shown if name in able}
        return dict(sorted(usable.items(), key=lambda item: len(item[1])))
