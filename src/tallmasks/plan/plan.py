"""Parameters to recipes to paths: what has to be made, from what, and where it lies.

Every artifact is a `Node`.  Its digest is a function of what it is made *from* (kind, stage version, parameters,
digests of its inputs, sha256 of source files), never of who asked for it (a benchmark's name) nor of when (file
times).  Its path carries the digest, so "the file exists" means "it is up to date", a parameter set back to an old
value finds the old artifact again, and two benchmarks with the same members share everything.

Pure: no Snakemake, no DVC, no torch; nothing is read but the parameters, the source files that they name and, for
figure 5, the orders of the tasks where they are known.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallmasks import methods
from tallmasks.evaluation.subsets import ORDERS, Subset, subsets
from tallmasks.methods import magnitude_masking, ties
from tallmasks.models.imports import FINETUNE, Imported, locate, source_of
from tallmasks.plan.params import Params, check_names, known_tasks, method_names, own_tasks
from tallmasks.plan.stages import STAGE_VERSIONS, version_of
from tallmasks.results import figures, paper
from tallmasks.store.artifacts import Damaged, digest_of, read_json
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.source_digests import named_path, sha256_of_file, sha256_of_folder
from tallmasks.tasks import Task, catalogue
from tallmasks.tasks.vision.vision_tasks import TASKS, VisionTask
from tallmasks.training.controlled import Controlled

Seed = int | Controlled
"""Of a fine-tuning: how its images are drawn and, in the controlled experiment, which weights it may change."""

_FOLDERS = {
    "examples": "store/data/{catalogue}/examples",
    "head": "store/{model}/heads",
    "pretrained": "store/{model}/checkpoints",
    "checkpoint": "store/{model}/checkpoints",
    "imported": "store/{model}/checkpoints",
    "task_vector": "store/{model}/derived/task_vectors",
    "multi_task_vector": "store/{model}/derived/multi_task_vectors",
    "mask_bundle": "store/{model}/derived/mask_bundles",
    "agreement": "store/{model}/derived/agreements",
    "evaluation": "store/{model}/derived/evaluations",
    "task_evaluation": "store/{model}/derived/task_evaluations",
    "threshold_evaluation": "store/{model}/derived/threshold_evaluations",
    "task_orders": "store/{model}/derived/task_orders",
    "subset_evaluation": "store/{model}/derived/subset_evaluations",
}
_EXTENSIONS = dict.fromkeys(
    ("evaluation", "task_evaluation", "threshold_evaluation", "task_orders", "subset_evaluation"), "json"
)

GRIDS = {"scaled": "scaling_coefficient", "masked": "mask_lambda"}
"""What a protocol chooses on validation data: a key of `grids` in params.yaml."""

PAPER_VIEWS = ("masks", "thresholds", "controlled", "subsets", "illustration")
"""The results folders behind the paper's figures, results/<model>/<benchmark>/<name>/."""

ZEROSHOT = "zeroshot"
"""results/<model>/<benchmark>/zeroshot.csv, the one results file without fine-tuning; its provenance is its own."""

ILLUSTRATED = 4
"""How many tasks figure 1 shows."""

TRIM_FRACTIONS = (magnitude_masking.KEEP, ties.KEEP)
"""Kept fractions whose exact thresholds every task vector carries, so that no later step searches for them."""


def sha256_of_source(path: Path) -> str:
    """sha256 of the content of a source file or folder."""
    if not os.path.lexists(path):
        raise TallmasksError(f"{path}: no such file; params.yaml names it as a source")
    return sha256_of_folder(path) if path.is_dir() else sha256_of_file(path)


@dataclass(frozen=True, eq=False)
class Node:
    """One artifact of the store: what it is, what it is made from, where it lies."""

    kind: str
    model: str
    slug: str
    params: Mapping[str, Any]
    inputs: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)

    @functools.cached_property
    def recipe(self) -> dict[str, Any]:
        """Everything that decides the content, as plain JSON values."""
        return {
            "kind": self.kind,
            "version": STAGE_VERSIONS[self.kind],
            "params": dict(self.params),
            "inputs": {role: [node.digest for node in nodes] for role, nodes in self.inputs.items()},
            "sources": {role: sha256_of_source(path) for role, path in self.sources.items()},
        }

    @functools.cached_property
    def digest(self) -> str:
        return digest_of(self.recipe)

    @functools.cached_property
    def name(self) -> str:
        return f"{self.slug}-{self.digest}"

    @functools.cached_property
    def path(self) -> str:
        folder = _FOLDERS[self.kind].format(model=self.model, catalogue=self.model)
        return f"{folder}/{self.name}.{_EXTENSIONS.get(self.kind, 'safetensors')}"

    def walk(self) -> Iterator[Node]:
        """This node and everything that it is made from, each once."""
        seen: set[int] = set()
        todo: list[Node] = [self]
        while todo:
            node = todo.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                todo.extend(needed for nodes in node.inputs.values() for needed in nodes)


def _code(rows: Iterable[str] = (), merges: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """The digests of the code of some methods and merges: one that is edited is another one."""
    found = {
        "methods": {name: methods.get(name).code for name in rows},
        "merges": {name: methods.get_merge(name).code for name in merges},
    }
    return {what: code for what, code in found.items() if code}


class Plan:
    """What `params` ask for, as nodes.  The same arguments give the same `Node` object.

    Args:
        params: the content of params.yaml, already valid under its schema.
        root: the folder that relative paths in `params` are relative to.

    Raises:
        TallmasksError: `params` name a task, method, model or benchmark that does not exist, or one twice.
    """

    def __init__(self, params: Params, root: Path | str = ".") -> None:
        self.params = params
        self.root = Path(root)
        self._nodes: dict[tuple[str, str, str], Node] = {}
        self._complete: set[tuple[str, str]] = set()
        for stage in (
            "examples",
            "_converted",
            "head",
            "checkpoint",
            "task_vector",
            "task_evaluation",
            "multi_task_vector",
            "mask_bundle",
            "agreement",
            "evaluation",
            "threshold_evaluation",
            "task_orders",
            "subset_evaluation",
        ):
            setattr(self, stage, functools.cache(getattr(self, stage)))
        check_names(params)

    # -- what params.yaml declares ------------------------------------------------------------------------

    def _catalogue(self, model: str) -> Mapping[str, Task]:
        """The tasks that a model may have, those of params.yaml's own among them."""
        return known_tasks(self.params, self.model(model))

    @property
    def models(self) -> Mapping[str, Params]:
        return self.params["models"]

    @property
    def method_names(self) -> tuple[str, ...]:
        """The rows of every table, in their order."""
        return method_names(self.params)

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
        params = {
            **self._architecture(model),
            "pretraining": dict(spec["pretraining"]),
            "tasks": spec["tasks"],
        }
        return {"kind": "pretrained", "params": params}, named_path(self.root, spec["pretrained"])

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
        known = self._catalogue(model).keys()
        return tuple(name for name, tasks in self.params["benchmarks"].items() if known >= set(tasks))

    def tasks_for(self, model: str, benchmark: str) -> tuple[str, ...]:
        """The tasks of a benchmark.

        Raises:
            TallmasksError: the model has not all of them.
        """
        tasks = self.tasks(benchmark)
        if benchmark not in self.benchmarks(model):
            known = self._catalogue(model)
            able = [name for name in self.models if benchmark in self.benchmarks(name)]
            raise TallmasksError(
                f"results/{model}/{benchmark}: the model has no task "
                f"{', '.join(repr(task) for task in tasks if task not in known)}; "
                f"models that have all tasks of the benchmark: {', '.join(able)}"
            )
        return tasks

    @staticmethod
    def members(tasks: Iterable[str]) -> tuple[str, ...]:
        """The *set* of tasks in its one canonical order: what a recipe sees of a benchmark."""
        return tuple(sorted(set(tasks)))

    # -- the chain, stage by stage ------------------------------------------------------------------------

    def _node(
        self,
        kind: str,
        model: str,
        slug: str,
        params: Mapping[str, Any],
        inputs: Mapping[str, Iterable[Node]] | None = None,
        sources: Mapping[str, Path | Node] | None = None,
    ) -> Node:
        made = {role: (source,) for role, source in (sources or {}).items() if isinstance(source, Node)}
        node = Node(
            kind,
            model,
            slug,
            params,
            {role: tuple(nodes) for role, nodes in (inputs or {}).items()} | made,
            {role: source for role, source in (sources or {}).items() if isinstance(source, Path)},
        )
        self._nodes[kind, model, node.name] = node
        return node

    def pretrained(self, model: str) -> dict[str, Path | Node]:
        """A model's pretrained weights, by role: a file of the project's, or what is converted from another or from
        the hub."""
        named = self.model(model)["pretrained"]
        if isinstance(named, str) and named.endswith(".safetensors"):
            return {"pretrained": named_path(self.root, named)}
        return {"pretrained": self._converted(model)}

    def _converted(self, model: str) -> Node:
        """Pretrained weights that are not in the project's own format, converted once."""
        named = self.model(model)["pretrained"]
        if isinstance(named, str):
            sources = {"weights": named_path(self.root, named)}
            return self._node("pretrained", model, "pretrained", self._architecture(model), sources=sources)
        return self._node("pretrained", model, "pretrained", {**self._architecture(model), "pretrained": dict(named)})

    def _architecture(self, model: str) -> dict[str, Any]:
        spec = self.model(model)
        return {"family": spec["family"], "architecture": spec["architecture"]}

    def _network(self, model: str) -> dict[str, Any]:
        """What a job must know that gives images to the network."""
        spec = self.model(model)
        return self._architecture(model) | {key: dict(spec[key]) for key in ("preprocess",) if key in spec}

    def _evaluator(self, model: str) -> dict[str, Any]:
        """What a job must know that counts right answers."""
        spec = self.model(model)
        return self._network(model) | {"evaluation": dict(spec["evaluation"])}

    def examples(self, model: str, task: str, split: str) -> Node:
        """Images and labels of one split of one task; shared by all models of one catalogue and size of images."""
        spec = self.model(model)
        if spec["tasks"] == "vision":
            return self._vision_examples(spec["preprocess"]["size"], task, split)
        params = {
            "task": task,
            "split": split,
            "count": spec["examples"][split],
            "seed": spec["examples"]["seed"],
        }
        if code := getattr(catalogue(spec["tasks"])[task], "code", None):
            params["code"] = code
        return self._node("examples", spec["tasks"], f"{task}-{split}", params)

    def _vision_examples(self, side: int, task: str, split: str) -> Node:
        """Examples for models that take images of `side` pixels, from the hub or the local folder that `data` names."""
        described = self.params.get("vision_tasks", {}).get(task) or self.params.get("data", {}).get(task, {})
        data = {**TASKS, **own_tasks(self.params)}[task].data_recipe
        folder = described.get("path")
        params = {"task": task, "split": split, "side": side, "data": data}
        if folder is None:
            params["data"] = data | {key: described[key] for key in ("revision",) if key in described}
            return self._node("examples", "vision", f"{task}-{split}", params)
        params["data"] = {key: value for key, value in data.items() if key not in ("hub", "revision")}
        return self._node(
            "examples", "vision", f"{task}-{split}", params, sources={"data": named_path(self.root, folder)}
        )

    def head(self, model: str, task: str) -> Node:
        """The frozen zero-shot classification head of one task."""
        spec = self.model(model)
        prompts: Task = self._catalogue(model)[task]
        if isinstance(prompts, VisionTask):
            wording = spec.get("wording", {})
            of_checkpoint = source_of(spec.get("checkpoints", FINETUNE), task)
            prompts = prompts.worded_for(wording if isinstance(wording, str) else wording.get(task, of_checkpoint))
        params = {
            **self._architecture(model),
            "classes": list(prompts.classes),
            "templates": list(prompts.templates),
        }
        return self._node("head", model, task, params, sources=self.pretrained(model))

    def checkpoint(self, model: str, task: str, seed: Seed) -> Node:
        """The trainable tensors after fine-tuning on one task."""
        spec = self.model(model)
        found = locate(spec.get("checkpoints", FINETUNE), spec["architecture"], task, self.root)
        if found and not isinstance(seed, Controlled):
            return self._imported(model, task, found)
        params = {
            **self._network(model),
            "task": task,
            "seed": seed.seed if isinstance(seed, Controlled) else seed,
            "finetuning": dict(spec["finetuning"]),
        }
        if isinstance(seed, Controlled):
            params["partition"] = seed.partition(task)
        inputs = {"examples": [self.examples(model, task, "train")], "head": [self.head(model, task)]}
        return self._node("checkpoint", model, f"{task}-s{seed}", params, inputs, self.pretrained(model))

    def _imported(self, model: str, task: str, found: Imported) -> Node:
        """The trainable tensors of a checkpoint that somebody else fine-tuned, the same for every seed."""
        params = {**self._architecture(model), "task": task, "checkpoint": found.recipe}
        sources = self.pretrained(model) | ({"weights": found.local} if found.local else {})
        return self._node("imported", model, f"imported-{task}", params, sources=sources)

    def task_vector(self, model: str, task: str, seed: Seed) -> Node:
        """What fine-tuning changed, with the exact trim thresholds of the fractions that later steps keep."""
        params = {**self._architecture(model), "fractions": list(TRIM_FRACTIONS)}
        params["fractions_of"] = self.params["kept_fractions_of"]
        inputs = {"checkpoint": [self.checkpoint(model, task, seed)]}
        return self._node("task_vector", model, f"{task}-s{seed}", params, inputs, self.pretrained(model))

    def task_evaluation(self, model: str, task: str, method: str, seed: Seed) -> Node:
        """One task's accuracy under a method that looks at no other task; every benchmark with the task shares it."""
        inputs: dict[str, Iterable[Node]] = {
            "head": [self.head(model, task)],
            "validation": [self.examples(model, task, "validation")],
            "test": [self.examples(model, task, "test")],
        }
        slug = f"{method}-{task}"
        if methods.get(method).protocol == "finetuned":
            inputs["checkpoint"] = [self.checkpoint(model, task, seed)]
            slug += f"-s{seed}"
        params = {**self._evaluator(model), "method": method, "code": _code([method]), "task": task}
        return self._node("task_evaluation", model, slug, params, inputs, self.pretrained(model))

    def _slug(self, name: str, tasks: tuple[str, ...], seed: Seed) -> str:
        return f"{name}-{len(tasks)}tasks-s{seed}"

    def _task_vectors(self, model: str, tasks: tuple[str, ...], seed: Seed) -> list[Node]:
        return [self.task_vector(model, task, seed) for task in tasks]

    def multi_task_vector(self, model: str, tasks: tuple[str, ...], merge: str, seed: Seed) -> Node:
        inputs = {"task_vectors": self._task_vectors(model, tasks, seed)}
        params = {"merge": merge, "code": _code(merges=[merge])}
        return self._node("multi_task_vector", model, self._slug(merge, tasks, seed), params, inputs)

    def mask_bundle(self, model: str, tasks: tuple[str, ...], merge: str, seed: Seed) -> Node:
        params = {"tasks": list(tasks), "mask_lambda": list(self.params["grids"]["mask_lambda"])}
        inputs = {
            "task_vectors": self._task_vectors(model, tasks, seed),
            "multi_task_vector": [self.multi_task_vector(model, tasks, merge, seed)],
        }
        return self._node("mask_bundle", model, self._slug(merge, tasks, seed), params, inputs)

    def agreement(self, model: str, tasks: tuple[str, ...], merge: str, seed: Seed) -> Node:
        """How many tasks' selected masks hold each weight; the selection is that of the TALL-mask method."""
        inputs = {
            "multi_task_vector": [self.multi_task_vector(model, tasks, merge, seed)],
            "mask_bundle": [self.mask_bundle(model, tasks, merge, seed)],
            "selection": [self.evaluation(model, tasks, methods.masking(merge).name, seed)],
        }
        return self._node("agreement", model, self._slug(merge, tasks, seed), {"tasks": list(tasks)}, inputs)

    def evaluation(self, model: str, tasks: tuple[str, ...], method: str, seed: Seed) -> Node:
        """Every coefficient of one method on every task's validation data, the choice, and one reading of the test."""
        chosen = methods.get(method)
        inputs: dict[str, Iterable[Node]] = {
            "heads": [self.head(model, task) for task in tasks],
            "validation": [self.examples(model, task, "validation") for task in tasks],
            "test": [self.examples(model, task, "test") for task in tasks],
            "fine_tuned": [self.task_evaluation(model, task, "fine_tuned", seed) for task in tasks],
        }
        if chosen.merge:
            inputs["multi_task_vector"] = [self.multi_task_vector(model, tasks, chosen.merge, seed)]
            if "mask" in chosen.needs:
                inputs["mask_bundle"] = [self.mask_bundle(model, tasks, chosen.merge, seed)]
            if "agreement" in chosen.needs:
                inputs["agreement"] = [self.agreement(model, tasks, chosen.merge, seed)]
        if chosen.needs & {"task_vector", "threshold"}:
            inputs["task_vectors"] = self._task_vectors(model, tasks, seed)
        params: dict[str, Any] = {
            **self._evaluator(model),
            "method": method,
            "code": _code([method]),
            "tasks": list(tasks),
        }
        if chosen.protocol in GRIDS:
            params["grid"] = list(self.params["grids"][GRIDS[chosen.protocol]])
        return self._node("evaluation", model, self._slug(method, tasks, seed), params, inputs, self.pretrained(model))

    # -- behind the paper's figures -----------------------------------------------------------------------

    def _images(self, model: str, sweep: str) -> dict[str, int]:
        """How many images are behind one choice or one accuracy of a sweep, by split; all where nothing is said."""
        return dict(self.model(model).get("sweeps", {}).get(sweep, {}))

    def threshold_evaluation(self, model: str, tasks: tuple[str, ...], merge: str, seed: Seed) -> Node:
        """Consensus merging for the thresholds k from 0 to T + 1 that no row of the tables is at, alpha tuned at each
        (figure 6)."""
        evaluation = self.evaluation(model, tasks, methods.consensus(merge).name, seed)
        params = {
            **self._evaluator(model),
            "tasks": list(tasks),
            "merge": merge,
            "code": _code([methods.consensus(merge).name]),
            "thresholds": [k for k in range(len(tasks) + 2) if methods.at_threshold(merge, k) is None],
            "images": self._images(model, "thresholds"),
            "grid": list(self.params["grids"]["scaling_coefficient"]),
        }
        slug = self._slug(merge, tasks, seed)
        return self._node("threshold_evaluation", model, slug, params, evaluation.inputs, self.pretrained(model))

    def task_orders(self, model: str, tasks: tuple[str, ...]) -> Node:
        """The tasks in figure 5's orders, which follow from the zero-shot accuracies."""
        inputs = {"zeroshot": [self.task_evaluation(model, task, "zeroshot", self.seeds[0]) for task in tasks]}
        return self._node("task_orders", model, f"{len(tasks)}tasks", {"tasks": list(tasks)}, inputs)

    def subset_evaluation(self, model: str, tasks: tuple[str, ...], seed: Seed) -> Node:
        """Figure 5's methods on one set of tasks, from its task vectors; merges and masks are made in memory."""
        names = self.params["paper"]["subsets"]["methods"]
        merges = sorted({merge for name in names if (merge := methods.get(name).merge)})
        params = {
            **self._evaluator(model),
            "tasks": list(tasks),
            "images": self._images(model, "subsets"),
            "methods": list(names),
            "code": _code(names, merges),
            "grids": {name: list(grid) for name, grid in self.params["grids"].items()},
        }
        inputs = {
            "heads": [self.head(model, task) for task in tasks],
            "validation": [self.examples(model, task, "validation") for task in tasks],
            "test": [self.examples(model, task, "test") for task in tasks],
            "fine_tuned": [self.task_evaluation(model, task, "fine_tuned", seed) for task in tasks],
            "task_vectors": self._task_vectors(model, tasks, seed),
        }
        slug = f"{len(tasks)}tasks-s{seed}"
        return self._node("subset_evaluation", model, slug, params, inputs, self.pretrained(model))

    def subsets(self, model: str, benchmark: str) -> list[tuple[Subset, Node]] | None:
        """Figure 5's subsets of a benchmark, each once; None as long as the zero-shot accuracies are not known."""
        path = self.root / self.task_orders(model, self.members(self.tasks(benchmark))).path
        try:
            ordered = read_json(path)["orders"]
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
        able = set(self.benchmarks(model))
        usable = {name: self.tasks(name) for name in self._shown_benchmarks if name in able}
        return dict(sorted(usable.items(), key=lambda item: len(item[1])))

    @property
    def _shown_benchmarks(self) -> tuple[str, ...]:
        listed = self.params["paper"]["benchmarks"]
        return tuple(self.params["benchmarks"] if listed == "all" else listed)

    # -- what people ask for ------------------------------------------------------------------------------

    def results(self, model: str, tasks: tuple[str, ...], seed: Seed) -> dict[str, list[Node]]:
        """What the files of results/<model>/<benchmark>/ are written from, by role, for the set `tasks`."""
        rows = [methods.get(name) for name in self.method_names]
        alone = [row for row in rows if row.looks_at_one_task] + [methods.get("fine_tuned")]
        merges = self._agreeing_merges()
        return {
            "task_evaluations": [
                self.task_evaluation(model, task, name, seed)
                for name in sorted({row.name for row in alone})
                for task in tasks
            ],
            "evaluations": [self.evaluation(model, tasks, row.name, seed) for row in rows if not row.looks_at_one_task],
            "agreements": [self.agreement(model, tasks, merge, seed) for merge in merges],
            "merged": [self.multi_task_vector(model, tasks, merge, seed) for merge in merges],
        }

    def _agreeing_merges(self) -> list[str]:
        """The merges whose masks are counted for a consensus in the tables."""
        rows = [methods.get(name) for name in self.method_names]
        return list(dict.fromkeys(row.merge for row in rows if row.merge and "agreement" in row.needs))

    def find(self, kind: str, model: str, name: str) -> Node:
        """The node of one file name, also in a process that was told nothing but that name.

        Raises:
            TallmasksError: no declared recipe yields the name, since the parameters have changed or never did.
        """
        key = (kind, model, name)
        if key not in self._nodes:
            for model_and_benchmark in self._runnable(self.models):
                with contextlib.suppress(TallmasksError):  # of another model, whose files are not there, say
                    self._declare(*model_and_benchmark)
        try:
            return self._nodes[key]
        except KeyError:
            raise TallmasksError(
                f"{name}: no recipe declared in params.yaml yields this artifact; its parameters have changed since "
                "it was named: ask for the results file instead"
            ) from None

    def _runnable(self, models: Iterable[str]) -> list[tuple[str, str]]:
        return [(model, benchmark) for model in models for benchmark in self.benchmarks(model)]

    def _declare(self, model: str, benchmark: str) -> None:
        """Make every node of a model and benchmark known to `find`, for every seed."""
        if (model, benchmark) in self._complete:
            return
        for node in self.view_artifacts(ZEROSHOT, model, benchmark)["task_evaluations"]:
            _ = node.path  # before what may need checkpoints that are not there
        for seed in self.seeds:
            for nodes in self.results(model, self.members(self.tasks(benchmark)), seed).values():
                for node in nodes:
                    _ = node.path
        for kind in PAPER_VIEWS:
            for nodes in self.view_artifacts(kind, model, benchmark).values():
                for node in nodes:
                    _ = node.path
        for _, node in self.subsets(model, benchmark) or ():
            _ = node.path
        self._complete.add((model, benchmark))

    def declared(self, models: Iterable[str] | None = None) -> dict[str, Node]:
        """Every artifact that a declared recipe names, by path: those of all or some models, every benchmark and seed.

        Raises:
            TallmasksError: a source file that a recipe names is not there.
        """
        for model_and_benchmark in self._runnable(models or self.models):
            self._declare(*model_and_benchmark)
        return {node.path: node for node in self._nodes.values()}

    def closure(self, model: str, seeds: Iterable[int] | None = None) -> list[Node]:
        """Every artifact behind every benchmark that `model` has the tasks of, each once, sorted by path."""
        found: dict[str, Node] = {}
        for benchmark in self.benchmarks(model):
            for seed in self.seeds[:1] if seeds is None else seeds:
                for nodes in self.results(model, self.members(self.tasks(benchmark)), seed).values():
                    for top in nodes:
                        for node in top.walk():
                            found[node.path] = node
        return [found[path] for path in sorted(found)]

    def view(self, kind: str, model: str, benchmark: str) -> dict[str, Any]:
        """The recipe of results/<model>/<benchmark>/ (`kind` "benchmark"), of its seeds/ ("seeds": every seed), or of
        its zeroshot.csv ("zeroshot", which knows no seed).

        Unlike an artifact's, it holds the benchmark's name and the order of its tasks, which the files show.
        """
        tasks, seeds = self.tasks_for(model, benchmark), self._view_seeds(kind)
        spec = self.model(model)
        if len(seeds) > 1 and any(source_of(spec.get("checkpoints", FINETUNE), task) != FINETUNE for task in tasks):
            raise TallmasksError(
                f"results/{model}/{benchmark}/{kind}: checkpoints that were imported have no seeds; it needs "
                f"`checkpoints: {FINETUNE}` in params.yaml"
            )
        recipe = {
            "kind": f"{kind}_view",
            "version": version_of(kind),
            "params": {
                "model": model,
                "benchmark": benchmark,
                "tasks": list(tasks),
                **self._view_params(kind),
                "seeds": list(seeds),
                **self._architecture(model),
            },
            "inputs": {
                role: [node.digest for node in nodes]
                for role, nodes in self.view_artifacts(kind, model, benchmark).items()
            },
            "sources": {
                role: source.digest if isinstance(source, Node) else sha256_of_source(source)
                for role, source in self.pretrained(model).items()
            },
        }
        return {**recipe, "digest": digest_of(recipe)}

    def view_artifacts(self, kind: str, model: str, benchmark: str) -> dict[str, list[Node]]:
        """What a results folder is written from, by role; for the tables of a benchmark `<seed>/<role>`.

        "subsets" is written from the evaluation of every subset as well, once the zero-shot accuracies say which
        those are; here stands the one of the whole benchmark, whose recipe changes whenever that of a subset does.
        """
        tasks = self.tasks_for(model, benchmark)
        members, seed, merges = self.members(tasks), self.seeds[0], self._agreeing_merges()
        if kind == ZEROSHOT:
            return {"task_evaluations": [self.task_evaluation(model, task, ZEROSHOT, seed) for task in members]}
        if kind not in PAPER_VIEWS:
            return {
                f"{seed}/{role}": nodes
                for seed in self._view_seeds(kind)
                for role, nodes in self.results(model, members, seed).items()
            }
        fine_tuned = [self.task_evaluation(model, task, "fine_tuned", seed) for task in members]
        if kind == "masks":
            return {
                "selections": [self.evaluation(model, members, methods.masking(m).name, seed) for m in merges],
                "mask_bundles": [self.mask_bundle(model, members, merge, seed) for merge in merges],
                "merged": [self.multi_task_vector(model, members, merge, seed) for merge in merges],
            }
        if kind == "thresholds":
            known = [methods.at_threshold(merge, k) for merge in merges for k in range(len(members) + 2)]
            return {
                "thresholds": [self.threshold_evaluation(model, members, merge, seed) for merge in merges],
                "rows": [self.evaluation(model, members, row.name, seed) for row in known if row],
                "fine_tuned": fine_tuned,
            }
        if kind == "controlled":
            controlled = self.controlled(benchmark)
            return {
                "standard": [*fine_tuned, self.evaluation(model, members, "task_arithmetic", seed)],
                "controlled": [
                    *(self.task_evaluation(model, task, "fine_tuned", controlled) for task in members),
                    self.evaluation(model, members, "task_arithmetic", controlled),
                ],
            }
        if kind == "subsets":
            whole = self.subset_evaluation(model, members, seed)
            return {"orders": [self.task_orders(model, members)], "fine_tuned": fine_tuned, "whole": [whole]}
        assert kind == "illustration"
        return {"task_vectors": [self.task_vector(model, task, seed) for task in tasks[:ILLUSTRATED]]}

    def _view_params(self, kind: str) -> dict[str, Any]:
        """What the files of a results folder follow from besides its artifacts."""
        masking = [methods.masking(merge).name for merge in self._agreeing_merges()]
        consensus = [methods.consensus(merge).name for merge in self._agreeing_merges()]
        return {
            ZEROSHOT: {},
            "masks": {"methods": masking},
            "thresholds": {"methods": consensus},
            "controlled": {},
            "subsets": {"orders": list(self.subset_orders)},
            "illustration": {"grid": list(self.params["grids"]["mask_lambda"])},
        }.get(kind, {"methods": list(self.method_names), "code": _code(self.method_names), "agreements": masking})

    def figure(self, model: str, name: str) -> dict[str, Any]:
        """The recipe of results/<model>/figures/<name>.*: the results folders that it is drawn from."""
        figure = figures.FIGURES[name]
        shown = figures.in_scope(figure.scope, self.paper_benchmarks(model))
        return self._drawn("figure", model, name, shown, figure.views)

    def paper_table(self, model: str, name: str) -> dict[str, Any]:
        """The recipe of results/<model>/tables/<name>.*: the results folders that it is written from."""
        table = paper.TABLES[name]
        shown = figures.in_scope(table.scope, self.paper_benchmarks(model))
        return self._drawn("paper_table", model, name, shown, [table.view])

    def _drawn(
        self, kind: str, model: str, name: str, shown: Mapping[str, tuple[str, ...]], views: Iterable[str]
    ) -> dict[str, Any]:
        recipe = {
            "kind": kind,
            "version": STAGE_VERSIONS[kind],
            "params": {
                "model": model,
                "name": name,
                "benchmarks": [[benchmark, list(tasks)] for benchmark, tasks in shown.items()],
            },
            "inputs": {
                f"{benchmark}/{view}": [self.view(view, model, benchmark)["digest"]]
                for benchmark in shown
                for view in views
            },
        }
        return {**recipe, "digest": digest_of(recipe)}

    def _view_seeds(self, kind: str) -> tuple[int, ...]:
        return {"seeds": self.seeds, ZEROSHOT: ()}.get(kind, self.seeds[:1])
