"""An artifact of the store before it is made, and the declaration of the stage that makes it.

A stage is declared once, by a function that says what an artifact of it is made from (see `tallmasks.plan.chain`): its
number, its folder, its ending and what its jobs may use stand there, and paths, the index, the check of stage numbers,
`why`, `gc` and the rules' patterns follow.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tallmasks.store.artifacts import digest_of
from tallmasks.store.errors import TallmasksError
from tallmasks.store.source_digests import sha256_of_file, sha256_of_folder

if TYPE_CHECKING:
    pass

Uses = Literal["arrays", "evaluation", "finetuning"]
"""A key of a model's `resources` in params.yaml."""


@dataclass(frozen=True)
class Made:
    """What one artifact of a stage is made from.

    Attributes:
        slug: what people read in its name, before the digest.
        params: plain JSON values that decide its content.
        inputs: artifacts by role, in an order that counts.
        sources: files and folders of the user's by role, or an artifact in the place of one.
        owner: whose folder it lies in, where it is not the model's.
    """

    slug: str
    params: Mapping[str, Any]
    inputs: Mapping[str, Iterable[Node]] = field(default_factory=dict)
    sources: Mapping[str, Path | Node] = field(default_factory=dict)
    owner: str | None = None


@dataclass(frozen=True)
class Stage:
    """One kind of artifact.

    Attributes:
        name: in recipes, in params of rules and in messages.
        version: raised when a change of code changes what the stage makes.
        folder: where its artifacts lie; ``{model}`` stands for the owner.
        uses: what its jobs may use.
        script: the step that makes one, of workflow/scripts/.
        ending: of its files.
        constraint: of the names in a folder that several stages share, a regular expression.
        missing: what to say of an artifact that cannot be made on this machine now; None where all is well.
        declare: the function that was decorated.
    """

    name: str
    version: int
    folder: str
    uses: Uses
    script: str
    declare: Callable[..., Made | Node]
    ending: str = "safetensors"
    constraint: str | None = None
    missing: Callable[[Node], str | None] | None = None

    @property
    def pattern(self) -> str:
        """The path of its artifacts, with Snakemake's wildcards."""
        return f"{self.folder}/{{name}}.{self.ending}"


STAGES: dict[str, Stage] = {}
Declared = TypeVar("Declared", bound=Callable[..., "Made | Node"])


def stage(**said: Any) -> Callable[[Declared], Declared]:
    """Decorator: declare a stage by the function (plan, model, ...) that says what one of its artifacts is made from;
    the function's name is the stage's.  A function may return the artifact of another stage instead."""

    def register(declare: Declared) -> Declared:
        name = getattr(declare, "__name__")  # noqa: B009
        if name in STAGES:
            raise ValueError(f"stage {name} is declared twice")
        STAGES[name] = Stage(name=name, declare=declare, **said)
        return declare

    return register


def sha256_of_source(path: Path) -> str:
    """sha256 of the content of a source file or folder."""
    if not os.path.lexists(path):
        raise TallmasksError(f"{path}: no such file; params.yaml names it as a source")
    return sha256_of_folder(path) if path.is_dir() else sha256_of_file(path)


@dataclass(frozen=True, eq=False)
class Node:
    """One artifact of the store: what it is, what it is made from, where it lies."""

    stage: Stage
    model: str
    slug: str
    params: Mapping[str, Any]
    inputs: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, stage: Stage, model: str, made: Made) -> Node:
        """The artifact of a stage that a declaration describes."""
        artifacts = {role: (source,) for role, source in made.sources.items() if isinstance(source, Node)}
        return cls(
            stage,
            made.owner or model,
            made.slug,
            made.params,
            {role: tuple(nodes) for role, nodes in made.inputs.items()} | artifacts,
            {role: source for role, source in made.sources.items() if isinstance(source, Path)},
        )

    @property
    def kind(self) -> str:
        """The name of its stage."""
        return self.stage.name

    @functools.cached_property
    def recipe(self) -> dict[str, Any]:
        """Everything that decides the content, as plain JSON values."""
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
        return self.stage.pattern.format(model=self.model, name=self.name)

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
