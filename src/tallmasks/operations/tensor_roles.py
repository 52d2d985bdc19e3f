"""One table of what happens to each tensor in a merge or a bundle, and why. Checks, writers and printers read it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import NamedTuple

from tallmasks.errors import OptionError, TallmasksError, name_some
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.buffers import Buffer
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.fitting import has_form
from tallmasks.vectors.checkpoints.known_tensors import library_advice
from tallmasks.vectors.checkpoints.stored_whole import stored_whole


class Role(Enum):
    MERGED = "merged"
    UNCHANGED = "unchanged"
    AVERAGED = "averaged"
    OWN = "each task's own"
    TASK_ONLY = "only in the task"
    BASE_ONLY = "only in the base"
    LEFT_OUT = "the base's"


class TensorRole(NamedTuple):
    role: Role
    reason: str = ""


NOT_IN_BASE = TensorRole(Role.TASK_ONLY, "not in the base")
OTHER_SHAPE = TensorRole(Role.TASK_ONLY, "not in the base in this shape")
NOT_IN_TASK = TensorRole(Role.BASE_ONLY, "not in some tasks' models")


@dataclass(frozen=True)
class TensorRoles:
    """The role of each tensor, by name; tied tensors have that of their first name.

    Attributes:
        of_base: of the base's tensors. In a bundle, tasks that have it in another shape, or lack it, do not count.
        of_tasks: by task, tensors with a role of their own: TASK_ONLY and BASE_ONLY in a bundle, OWN heads in a merge.
    """

    of_base: Mapping[str, TensorRole]
    of_tasks: Mapping[str, Mapping[str, TensorRole]]

    def names(self, *roles: Role) -> tuple[str, ...]:
        """The base's tensors with one of the roles, sorted."""
        return tuple(name for name, one in self.of_base.items() if one.role in roles)

    def by_task(self, role: Role) -> dict[str, list[str]]:
        """The tensors that have the role in a task, for tasks with such tensors."""
        of_tasks = {task: [name for name, one in of.items() if one.role is role] for task, of in self.of_tasks.items()}
        return {task: names for task, names in of_tasks.items() if names}


def excluded_tensors(
    models: Sequence[Checkpoint],
    only: Sequence[str] = (),
    keep_base: Sequence[str] = (),
    heads: Sequence[str] | None = None,
) -> dict[str, TensorRole]:
    """The tensors that patterns leave out, and with ``heads`` those that differ in shape or are not in every model.

    Args:
        models: the base and the tasks' models.
        only, keep_base: shell patterns of tensor names.
        heads: patterns of more tensors that each task keeps; None if tasks keep none.

    Raises TallmasksError if a pattern matches no tensor, or most of the base would be a head.
    """
    names_of: dict[str, list[str]] = {}  # all names of each tensor
    for one in models:
        for name in one.names:
            names_of.setdefault(one.aliases.get(name, name), []).append(name)
    for option, patterns in (("only", only), ("keep_base", keep_base), ("heads", heads or ())):
        for pattern in patterns:
            if not any(_matching(names, [pattern]) for names in names_of.values()):
                raise OptionError(f"{option}: {pattern}: no tensor name matches; the names are {name_some(names_of)}")
    excluded = {}
    for name, names in names_of.items():
        if kept := _matching(names, keep_base):
            excluded[name] = TensorRole(Role.LEFT_OUT, f"--keep-base '{kept}'")
        elif only and not _matching(names, only):
            excluded[name] = TensorRole(Role.LEFT_OUT, "no pattern of --only")
    if heads is not None:
        excluded |= _heads(models, {name: names_of[name] for name in names_of.keys() - excluded.keys()}, heads)
    for one in models:
        for alias, name in one.aliases.items():
            for tied, other in ((alias, name), (name, alias)):
                if tied not in excluded and other in excluded:
                    excluded[tied] = TensorRole(Role.LEFT_OUT, f"tied to {other}")
    return excluded


def _heads(
    models: Sequence[Checkpoint], names_of: Mapping[str, Sequence[str]], patterns: Sequence[str]
) -> dict[str, TensorRole]:
    base = models[0]
    constants = {name for one in models for name, kind in one.buffers.items() if kind is Buffer.CONSTANT}
    heads = {}
    for name, names in sorted(names_of.items()):
        if pattern := _matching(names, patterns):
            heads[name] = TensorRole(Role.OWN, f"--heads '{pattern}'")
        elif name not in constants and any(name not in one.names for one in models):
            heads[name] = TensorRole(Role.OWN, "not in every model")
        elif name not in constants and len({one.info(name).shape for one in models}) > 1:
            heads[name] = TensorRole(Role.OWN, "of different shapes")
    if 2 * sum(base.info(name).size for name in heads if name in base.names) > sum(
        info.size for info in base.tensors.values()
    ):
        raise TallmasksError(f"heads: most of {base.title} would be kept as heads; use fine-tuned models of one base")
    if inner := [name for name in heads if not _matching(names_of[name], patterns) and _is_inside(name, models)]:
        raise TallmasksError(
            f"heads: some models lack {name_some(inner)}, but all models have that block. If tensor names differ"
            " between releases of transformers, save all models with one release; otherwise"
            f" `heads: {inner[0]}` keeps each task's tensor, and `keep_base: {inner[0]}` the base's"
        )
    return heads


def _matching(names: Iterable[str], patterns: Iterable[str]) -> str | None:
    """The first pattern that one of the names has."""
    return next((pattern for name in names for pattern in patterns if fnmatchcase(name, pattern)), None)


def _is_inside(name: str, models: Sequence[Checkpoint]) -> bool:
    """Whether some model lacks a tensor although every model has others of its block, such as `encoder.layer.0.`."""
    block = name[: max((match.end() for match in re.finditer(r"\.\d+\.", name)), default=0)]
    absent = any(name not in one.names for one in models)
    return absent and bool(block) and all(any(other.startswith(block) for other in one.names) for one in models)


def tensors_of_one(
    name_of_task: str, base: Checkpoint, task: Checkpoint, excluded: Collection[str]
) -> dict[str, TensorRole]:
    """The tensors that the task has and the base has not, in this shape and kind (float or not), and those that only
    the base has. Masks and tables are not included, because the model class recomputes them; nor are the base's
    counters.

    Raises TallmasksError if this is more than half of one of the two.
    """
    roles = {}
    for name in sorted(task.tensors.keys() - {*excluded}):
        mine, theirs = base.tensors.get(name), task.tensors[name]
        if Buffer.CONSTANT in (task.buffers.get(name), base.buffers.get(name) if mine else None):
            continue
        if mine is None:
            roles[name] = NOT_IN_BASE
        elif mine.shape != theirs.shape or mine.is_float != theirs.is_float:
            roles[name] = OTHER_SHAPE
    for name in sorted(base.tensors.keys() - {*task.names, *excluded}):
        if base.buffers.get(name) in (None, Buffer.AVERAGE):
            roles[name] = NOT_IN_TASK
    other = f"has tensors that {base.title} does not have in this shape:"
    for checkpoint, role, kind in ((task, Role.TASK_ONLY, other), (base, Role.BASE_ONLY, "lacks")):
        names = [name for name, one in roles.items() if one.role is role]
        if 2 * sum(checkpoint.info(name).size for name in names) > checkpoint.layout.size:
            raise TallmasksError(
                f"{name_of_task}: {task.title} {kind} {name_some(names)} ({len(names)} tensors in all), more than half"
                f" of {checkpoint.title}; expected a model that was fine-tuned from {base.title}, saved by the same"
                f" library{library_advice(base, task)}"
            )
    return roles


def tensor_roles(
    base: Checkpoint,
    tasks: Mapping[str, Checkpoint],
    excluded: Mapping[str, TensorRole],
    of_tasks: Mapping[str, Mapping[str, TensorRole]] | None = None,
    exact: bool = False,
) -> TensorRoles:
    """The role of every tensor of models that fit; compares their values.

    Args:
        excluded: see `excluded_tensors`.
        of_tasks: of a bundle, by task, see `tensors_of_one`; None for a merge.
        exact: whether the method is lossless, so that heads are compressed like all tensors.

    Raises TallmasksError if the tasks' weights equal the base's.
    """
    shared = {
        name: [one for task, one in tasks.items() if not of_tasks or name not in of_tasks.get(task, ())]
        for name in base.tensors.keys() - excluded.keys()
    }
    same = parallel(
        lambda item: all(has_form(base, one, item[0]) and one.same(base, item[0]) for one in item[1]), shared.items()
    )
    equal = dict(zip(shared, same, strict=True))
    whole = {}
    if of_tasks is not None and not exact:
        have_heads = all(any(one.role is Role.TASK_ONLY for one in roles.values()) for roles in of_tasks.values())
        whole = stored_whole(base, tasks.values(), have_heads)
    roles = {}
    for name, info in base.tensors.items():
        kind = base.buffers.get(name)
        if name in excluded:
            roles[name] = excluded[name]
        elif equal[name]:
            roles[name] = TensorRole(Role.UNCHANGED, "no task changed them")
        elif info.is_float and kind is None and name not in whole:
            roles[name] = TensorRole(Role.MERGED)
        elif of_tasks is not None and all(has_form(base, one, name) for one in shared[name]):
            roles[name] = TensorRole(Role.OWN, kind.value if kind else whole[name] if info.is_float else "not floats")
        elif of_tasks is None and info.is_float and kind is Buffer.AVERAGE:
            roles[name] = TensorRole(Role.AVERAGED, kind.value)
        else:
            roles[name] = TensorRole(Role.LEFT_OUT, kind.value if kind else "not floats")
    if of_tasks is None:
        of_tasks = {
            task: {name: one for name, one in excluded.items() if name in model.tensors and one.role is Role.OWN}
            for task, model in tasks.items()
        }
    found = TensorRoles(roles, of_tasks)
    if not found.names(Role.MERGED, Role.OWN):
        raise TallmasksError("the weights of every task are identical to the base's: there is nothing to merge")
    return found
