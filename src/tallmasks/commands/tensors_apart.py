"""Tensors that are not merged: those that stay the base's, and heads that every task has of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import name_some
from tallmasks.vectors.checkpoints.buffers import Buffer
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint


@dataclass(frozen=True)
class Apart:
    """What is not merged.

    Attributes:
        names: of the base's tensors and the tasks', aliases among them.
        heads: of each task, the tensors that lie beside the merged model.
    """

    names: frozenset[str] = frozenset()
    heads: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def without(self, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint as far as it is merged."""
        if not self.names:
            return checkpoint
        tensors = {name: info for name, info in checkpoint.tensors.items() if name not in self.names}
        aliases = {alias: name for alias, name in checkpoint.aliases.items() if name not in self.names}
        return replace(checkpoint, tensors=tensors, aliases=aliases)


def apart(
    base: Checkpoint,
    tasks: Mapping[str, Checkpoint],
    only: Sequence[str] = (),
    keep_base: Sequence[str] = (),
    heads: Sequence[str] | None = None,
) -> Apart:
    """What patterns leave out, and with ``heads`` what differs in shape or is not in every model.

    Args:
        only, keep_base: patterns of names, as of a shell.
        heads: patterns of more tensors that every task keeps; None where no task keeps any.

    Raises TallmasksError where a pattern fits no tensor, or most of the base would be a head.
    """
    models = (base, *tasks.values())
    every = dict.fromkeys(name for one in models for name in one.names)
    for option, patterns in (("--only", only), ("--keep-base", keep_base), ("--heads", heads or ())):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in every):
                raise TallmasksError(f"{option} {pattern}: no tensor has such a name; there is {name_some(every)}")
    left = [name for name in every if (only and not _fits(name, only)) or _fits(name, keep_base)]
    own: list[str] = []
    if heads is not None:
        constants = {name for one in models for name, kind in one.buffers.items() if kind is Buffer.CONSTANT}
        own = [
            name
            for name in every
            if name not in left and (_fits(name, heads) or not (name in constants or _is_shared(name, models)))
        ]
        size = sum(base.tensors[name].size for name in own if name in base.tensors)
        if 2 * size > sum(info.size for info in base.tensors.values()):
            raise TallmasksError(f"--heads: most of {base.title} would be a head of each task: these are other models")
        if inner := [name for name in own if not _fits(name, heads) and _is_inside(name, models)]:
            raise TallmasksError(
                f"--heads: {name_some(inner)}: in a block of every model, and not a tensor of every one; expected heads"
                " outside of such blocks. Are these other names of one tensor? Save the models with one release of"
                f" transformers. Else name them: `--heads {inner[0]}` or `--keep-base {inner[0]}`"
            )
    names = {one.aliases.get(name, name) for name in (*left, *own) for one in models}
    aliases = {alias for one in models for alias, name in one.aliases.items() if name in names}
    kept = {task: [name for name in own if name in one.tensors] for task, one in tasks.items()}
    return Apart(frozenset(names | aliases), {task: tensors for task, tensors in kept.items() if tensors})


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_inside(name: str, models: Sequence[Checkpoint]) -> bool:
    """Whether some model lacks a tensor, and every one has others in its block, such as `encoder.layer.0.`."""
    block = name[: max((match.end() for match in re.finditer(r"\.\d+\.", name)), default=0)]
    absent = any(name not in one.names for one in models)
    return absent and bool(block) and all(any(other.startswith(block) for other in one.names) for one in models)


def _is_shared(name: str, models: Sequence[Checkpoint]) -> bool:
    """Whether every model has a tensor, in one shape."""
    return all(name in one.names for one in models) and len({one.info(name).shape for one in models}) == 1
