"""An artifact of the store before it is made, and the declaration of the stage that makes it.

A stage is declared once, in `tallmasks.plan.chain` or `figure_stages`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec

from tallmasks.artifacts.labels import digest_of
from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import sha256_of_file, sha256_of_folder

Which = ParamSpec("Which")
Uses = Literal["arrays", "one_task", "evaluation", "finetuning"]
"""A key of a model's `resources` in params.yaml."""


@dataclass(frozen=True)
class Made:
    """What one artifact of a stage is made from.

    Attributes:
        slug: the part of its name before the digest.
        params: plain JSON values that decide its content.
        inputs: artifacts by role; their order counts.
        sources: the user's files and folders by role, or an artifact instead.
        owner: the owner of its folder, if not the model.
    """

    slug: str
    params: Mapping[str, Any]
    inputs: Mapping[str, Iterable[Node]] = field(default_factory=dict)
    sources: Mapping[str, Path | Node] = field(default_factory=dict)
    owner: str | None = None


@dataclass(frozen=True)
class Stage(Generic[Which]):
    """One kind of artifact; called with a plan and what the artifact is of, it gives the artifact.

    Attributes:
        name: of the stage, of its rule, of its script in workflow/scripts/ and of its folder; in recipes.
        version: raised when a change of code changes what the stage makes.
        uses: what its jobs may use.
        declare: the function that was decorated.
        folder: of its artifacts; ``{model}`` stands for the owner and ``{stage}`` for the name.
        ending: of its files.
        joint: whether it is made from all tasks at once, where a merge or an input names it.
        missing: the message for an artifact that cannot be made on this machine now; None where it can.
    """

    name: str
    version: int
    uses: Uses
    declare: Callable[Which, Made | Node]
    folder: str = "store/{model}/derived/{stage}"
    ending: str = "safetensors"
    joint: bool = False
    missing: Callable[[Node], str | None] | None = None

    def __call__(self, *which: Which.args, **options: Which.kwargs) -> Node:
        """The artifact; the same arguments give the same object."""
        of: tuple[Any, ...] = which
        plan, model, *_ = of
        key = (self.name, of[1:], tuple(options.items()))
        made: dict[Any, Node] = plan.artifacts
        if key not in made:
            declared = self.declare(*which, **options)
            made[key] = declared if isinstance(declared, Node) else Node.of(self, model, declared)
        return made[key]

    def path(self, model: str, name: str) -> str:
        """The path of an artifact; with Snakemake's wildcards in the place of both, of all of them."""
        return f"{self.folder.format(model=model, stage=self.name)}/{name}.{self.ending}"

    @functools.cached_property
    def options(self) -> tuple[str, ...]:
        """The keyword-only parameters of its function: options of the merge or the method that names it."""
        parameters = inspect.signature(self.declare).parameters.values()
        return tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


STAGES: dict[str, Stage[Any]] = {}


def stage(**fields: Any) -> Callable[[Callable[Which, Made | Node]], Stage[Which]]:
    """Decorator: declare a stage, named after a function ``(plan, model, ...) -> what one artifact is made from``.

    The function may return the artifact of another stage instead.
    """

    def register(declare: Callable[Which, Made | Node]) -> Stage[Which]:
        name = getattr(declare, "__name__")  # noqa: B009
        STAGES[name] = Stage(name=name, declare=declare, **fields)
        return STAGES[name]

    return register


def sha256_of_source(path: Path) -> str:
    """sha256 of the content of a source file or folder."""
    if not os.path.lexists(path):
        raise TallmasksError(f"{path}: no such file; params.yaml names it. Correct the name, or `git checkout {path}`")
    return sha256_of_folder(path) if path.is_dir() else sha256_of_file(path)


@dataclass(frozen=True, eq=False)
class Node:
    """One artifact of the store."""

    stage: Stage[Any]
    model: str
    slug: str
    params: Mapping[str, Any]
    inputs: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, stage: Stage[Any], model: str, made: Made) -> Node:
        artifacts = {role: (source,) for role, source in made.sources.items() if isinstance(source, Node)}
        files = {role: source for role, source in made.sources.items() if isinstance(source, Path)}
        inputs = {role: tuple(nodes) for role, nodes in made.inputs.items()} | artifacts
        return cls(stage, made.owner or model, made.slug, made.params, inputs, files)

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
        return f"{self.slug}-{self.digest}"

    @functools.cached_property
    def path(self) -> str:
        return self.stage.path(self.model, self.name)

    def walk(self) -> Iterator[Node]:
        """This node and everything that it is made from, each once."""
        visited: set[int] = set()
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in visited:
                visited.add(id(node))
                yield node
                waiting.extend(needed for nodes in node.inputs.values() for needed in nodes)
