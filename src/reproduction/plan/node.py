"""Stages and nodes: a step of the workflow with its inputs, its recipe and the paths of its files.

`chain` declares artifacts of the store; `views` and `figures_and_tables` declare results.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec

from reproduction.artifacts.folders import RESULTS
from reproduction.artifacts.labels import digest_of
from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import sha256_of_file, sha256_of_folder

Which = ParamSpec("Which")
Uses = Literal["cpu", "one_task", "evaluation", "finetuning"]
"""A key of a model's `resources` in params.yaml."""


@dataclass(frozen=True)
class Declaration:
    """What a stage declares for one artifact or one set of results files.

    Attributes:
        name: the file name without digest; for results the name of the benchmark, figure or table.
        params: all parameters that determine the content, as JSON values.
        inputs: artifacts and results by role, in an order that is part of the recipe.
        sources: the user's files and folders by role, or an artifact instead.
        owner: replaces the model in the path, as "vision" for examples that models share.
    """

    name: str
    params: Mapping[str, Any]
    inputs: Mapping[str, Iterable[Node]] = field(default_factory=dict)
    sources: Mapping[str, Path | Node] = field(default_factory=dict)
    owner: str | None = None


@dataclass(frozen=True)
class Stage(Generic[Which]):
    """One kind of step.  A call with a plan, a model and the other arguments of `declare` returns a `Node`.

    Attributes:
        name: also the name of its rule and of its script in workflow/scripts/.
        version: increased whenever a code change changes the content of its files.
        declare: the decorated function; it may return the node of another stage instead.
        files: path patterns with {model} and {name}.  The last file contains the recipe.
        joint: True if one artifact covers all tasks of a merge, False if there is one per task.
        role: what its artifacts are called among the inputs of other stages (default: its name).
        missing: returns a message if a node needs a download that is not available, otherwise None.
    """

    name: str
    version: int
    declare: Callable[Which, Declaration | Node]
    files: tuple[str, ...]
    uses: Uses = "cpu"
    joint: bool = False
    role: str = ""
    missing: Callable[[Node], str | None] | None = None

    def __post_init__(self) -> None:
        if not self.role:
            object.__setattr__(self, "role", self.name)

    def __call__(self, *which: Which.args, **options: Which.kwargs) -> Node:
        """The node; equal arguments return the same object."""
        of: tuple[Any, ...] = which
        plan, model, *_ = of
        key = (self.name, of[1:], tuple(options.items()))
        nodes: dict[Any, Node] = plan.nodes
        if key not in nodes:
            declared = self.declare(*which, **options)
            nodes[key] = declared if isinstance(declared, Node) else Node.of(self, model, declared)
        return nodes[key]

    @property
    def is_result(self) -> bool:
        return self.files[0].startswith(RESULTS.name)

    @functools.cached_property
    def options(self) -> tuple[str, ...]:
        """The keyword-only parameters of `declare`, which are options of a merge or method."""
        parameters = inspect.signature(self.declare).parameters.values()
        return tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


STAGES: dict[str, Stage[Any]] = {}
"""All stages by name; complete after `reproduction.plan.project` is imported."""


def stage(
    *,
    version: int,
    uses: Uses,
    folder: str = "store/{model}/derived/{stage}",
    ending: str = "safetensors",
    **fields: Any,
) -> Callable[[Callable[Which, Declaration | Node]], Stage[Which]]:
    """Decorator: declare a stage of the store, named after its function ``(plan, model, ...) -> Declaration``."""
    return _registered(version, [f"{folder}/{{name}}.{ending}"], uses=uses, **fields)


def results(*, version: int, files: Iterable[str]) -> Callable[[Callable[Which, Declaration | Node]], Stage[Which]]:
    """Decorator: declare a stage of results, named after its function ``(plan, model, name) -> Declaration``.

    ``files``: path patterns below results/{model}/ with {name}; the last one is the provenance.
    """
    return _registered(version, [f"{RESULTS}/{{model}}/{file}" for file in files])


def _registered(
    version: int, files: Iterable[str], **fields: Any
) -> Callable[[Callable[Which, Declaration | Node]], Stage[Which]]:
    def register(declare: Callable[Which, Declaration | Node]) -> Stage[Which]:
        name = getattr(declare, "__name__")  # noqa: B009
        STAGES[name] = Stage(name, version, declare, tuple(file.replace("{stage}", name) for file in files), **fields)
        return STAGES[name]

    return register


def stage_versions() -> dict[str, int]:
    return {name: one.version for name, one in STAGES.items()}


def sha256_of_source(path: Path) -> str:
    if not os.path.lexists(path):
        _, venv, inside = str(path).rpartition(".venv/")  # a target of the Makefile installs each of its folders
        what = f"Install it: make {inside.partition('/')[0]}" if venv else "Correct the name, or restore the file"
        raise TallmasksError(f"{path}: no such file; params.yaml names it. {what}")
    return sha256_of_folder(path) if path.is_dir() else sha256_of_file(path)


@dataclass(frozen=True, eq=False)
class Node:
    """One artifact of the store, or the results files that one job writes."""

    stage: Stage[Any]
    model: str
    slug: str
    params: Mapping[str, Any]
    inputs: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, stage: Stage[Any], model: str, spec: Declaration) -> Node:
        artifacts = {role: (source,) for role, source in spec.sources.items() if isinstance(source, Node)}
        files = {role: source for role, source in spec.sources.items() if isinstance(source, Path)}
        inputs = {role: tuple(nodes) for role, nodes in spec.inputs.items()} | artifacts
        return cls(stage, spec.owner or model, spec.name, spec.params, inputs, files)

    @property
    def kind(self) -> str:
        return self.stage.name

    @functools.cached_property
    def recipe(self) -> dict[str, Any]:
        """Everything that determines the content, as JSON values."""
        return {
            "kind": self.kind,
            "version": self.stage.version,
            "params": dict(self.params),
            "inputs": {role: [node.digest for node in nodes] for role, nodes in self.inputs.items()},
            "sources": {role: sha256_of_source(path) for role, path in self.sources.items()},
        }

    @functools.cached_property
    def digest(self) -> str:
        return digest_of(self.recipe)

    @functools.cached_property
    def name(self) -> str:
        return self.slug if self.stage.is_result else f"{self.slug}-{self.digest}"

    @functools.cached_property
    def files(self) -> tuple[str, ...]:
        """Paths relative to the project folder."""
        return tuple(file.format(model=self.model, name=self.name) for file in self.stage.files)

    @property
    def path(self) -> str:
        """The file that contains the recipe: the artifact, or the provenance of results."""
        return self.files[-1]

    @property
    def all_inputs(self) -> list[Node]:
        return [node for nodes in self.inputs.values() for node in nodes]

    def walk(self) -> Iterator[Node]:
        """This node and everything upstream of it, each once."""
        visited: set[int] = set()
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in visited:
                visited.add(id(node))
                yield node
                waiting.extend(node.all_inputs)
