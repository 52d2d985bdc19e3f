"""A step of the workflow before it runs: what it is made from, what decides its content, and where its files are.

Artifacts of the store and files of results/ are declared in the same way, as stages: artifacts in
`tallmasks.plan.chain` and `figure_stages`, results in `views`, `figure_views` and `drawings`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec

from tallmasks.artifacts.folders import RESULTS
from tallmasks.artifacts.labels import digest_of
from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import sha256_of_file, sha256_of_folder

Which = ParamSpec("Which")
Uses = Literal["arrays", "one_task", "evaluation", "finetuning"]
"""A key of a model's `resources` in params.yaml."""


@dataclass(frozen=True)
class Spec:
    """What one artifact, or one set of results files, is made from.

    Attributes:
        name: of an artifact the part before the digest; of results the benchmark, figure or table.
        params: plain JSON values that decide the content.
        inputs: artifacts and results by role; their order counts.
        sources: the user's files and folders by role, or an artifact instead.
        owner: the owner of the artifact's folder, if not the model.
        late_inputs: further inputs by role, which are known once some inputs are there; None before.
    """

    name: str
    params: Mapping[str, Any]
    inputs: Mapping[str, Iterable[Node]] = field(default_factory=dict)
    sources: Mapping[str, Path | Node] = field(default_factory=dict)
    owner: str | None = None
    late_inputs: Callable[[], Mapping[str, list[Node]] | None] = dict


@dataclass(frozen=True)
class Stage(Generic[Which]):
    """One kind of step.  Called with a plan, a model and what else the declaration takes, it gives a `Node`.

    Attributes:
        name: of the stage, its rule, and its script in workflow/scripts/; in recipes.
        version: raised when a change of code changes what is made.
        declare: the function that was decorated; it may return the node of another stage instead.
        files: the paths of its files, with {model} and {name}.  The last one carries the recipe.
        uses: what its jobs may use.
        joint: whether it is made from all tasks at once, where a merge or an input names it.
        missing: the message for an artifact that cannot be made on this machine now; None where it can.
    """

    name: str
    version: int
    declare: Callable[Which, Spec | Node]
    files: tuple[str, ...]
    uses: Uses = "arrays"
    joint: bool = False
    missing: Callable[[Node], str | None] | None = None

    def __call__(self, *which: Which.args, **options: Which.kwargs) -> Node:
        """The node; the same arguments give the same object."""
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
        """Whether its files are in results/, under names without a digest."""
        return self.files[0].startswith(RESULTS.name)

    @functools.cached_property
    def options(self) -> tuple[str, ...]:
        """The keyword-only parameters of its function: options of the merge or the method that names it."""
        parameters = inspect.signature(self.declare).parameters.values()
        return tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


STAGES: dict[str, Stage[Any]] = {}
"""All stages by name, once `tallmasks.plan.index` is imported."""


def stage(
    *,
    version: int,
    uses: Uses,
    folder: str = "store/{model}/derived/{stage}",
    ending: str = "safetensors",
    **fields: Any,
) -> Callable[[Callable[Which, Spec | Node]], Stage[Which]]:
    """Decorator: declare a kind of artifact, named after a function ``(plan, model, ...) -> Spec``."""

    def register(declare: Callable[Which, Spec | Node]) -> Stage[Which]:
        name = getattr(declare, "__name__")  # noqa: B009
        file = f"{folder.replace('{stage}', name)}/{{name}}.{ending}"
        STAGES[name] = Stage(name, version, declare, (file,), uses, **fields)
        return STAGES[name]

    return register


def results(*, version: int, files: Iterable[str]) -> Callable[[Callable[Which, Spec | Node]], Stage[Which]]:
    """Decorator: declare a kind of results, named after a function ``(plan, model, name) -> Spec``.

    ``files``: paths below results/{model}/, with {name}; the last one is the provenance.
    """

    def register(declare: Callable[Which, Spec | Node]) -> Stage[Which]:
        name = getattr(declare, "__name__")  # noqa: B009
        STAGES[name] = Stage(name, version, declare, tuple(f"{RESULTS}/{{model}}/{file}" for file in files))
        return STAGES[name]

    return register


def stage_versions() -> dict[str, int]:
    """The version of every stage, by name."""
    return {name: one.version for name, one in STAGES.items()}


def sha256_of_source(path: Path) -> str:
    """sha256 of the content of a source file or folder."""
    if not os.path.lexists(path):
        raise TallmasksError(f"{path}: no such file; params.yaml names it. Correct the name, or `git checkout {path}`")
    return sha256_of_folder(path) if path.is_dir() else sha256_of_file(path)


@dataclass(frozen=True, eq=False)
class Node:
    """One artifact of the store, or one set of results files that are written together."""

    stage: Stage[Any]
    model: str
    slug: str
    params: Mapping[str, Any]
    inputs: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)
    late_inputs: Callable[[], Mapping[str, list[Node]] | None] = dict

    @classmethod
    def of(cls, stage: Stage[Any], model: str, spec: Spec) -> Node:
        artifacts = {role: (source,) for role, source in spec.sources.items() if isinstance(source, Node)}
        files = {role: source for role, source in spec.sources.items() if isinstance(source, Path)}
        inputs = {role: tuple(nodes) for role, nodes in spec.inputs.items()} | artifacts
        return cls(stage, spec.owner or model, spec.name, spec.params, inputs, files, spec.late_inputs)

    @property
    def kind(self) -> str:
        """The name of its stage."""
        return self.stage.name

    @functools.cached_property
    def recipe(self) -> dict[str, Any]:
        """Everything that decides its content, as plain JSON values."""
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
        """The paths of its files, from the project's folder."""
        return tuple(file.format(model=self.model, name=self.name) for file in self.stage.files)

    @property
    def path(self) -> str:
        """The file with the recipe: the artifact, or the provenance of results."""
        return self.files[-1]

    @property
    def all_inputs(self) -> list[Node]:
        """Its inputs of every role, with the late ones that are known."""
        late = self.late_inputs() or {}
        return [node for nodes in (*self.inputs.values(), *late.values()) for node in nodes]

    def walk(self) -> Iterator[Node]:
        """This node and everything that it is made from, each once."""
        visited: set[int] = set()
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in visited:
                visited.add(id(node))
                yield node
                waiting.extend(node.all_inputs)
