"""Rename a model's tensors to the names in its base. Names differ because pickles store both names of tied embeddings
and safetensors files only one, because models with a head add a prefix such as `vit.` to the names of their base, and
because transformers renames tensors when it loads them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from tallmasks.errors import warn
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.transformers_models import library_advice, library_model
from tallmasks.vectors.checkpoints.transformers_names import modern

_TABLE = re.compile(r"emb|wte|tok|shared|vocab|lookup")
"""In the names of embeddings, to which output layers are tied."""


def named_as(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """The task with the base's names, derived from prefixes, ties and transformers' conversions.

    A tensor that the base lacks replaces a missing one that transformers ties to it. A byte-identical copy of a tensor
    that transformers ties to it is left out; of a model that transformers does not know, a copy of an embedding.
    Tensors unknown to the base keep their names.
    """
    if type(task) is not Checkpoint:  # LoRAs and models of bundles have the base's names
        return task
    task = _renamed(base, task)
    own: dict[str, str] = {}
    every = {name: [name] for name in base.tensors}
    for alias, of in base.aliases.items():
        every[of].append(alias)
    for name, names in every.items():
        targets = {task.aliases.get(one, one) for one in names if one in task.names} or _tied_to(base, task, name)
        first = min(targets, default="")
        if all(task.same(task, target, first) for target in targets):
            targets = {first} & targets
        if len(targets) == 1:  # with two, the base ties them and the task does not
            own[name] = targets.pop()
        else:
            own |= {target: target for target in targets}
    rest = task.tensors.keys() - own.values()
    own |= {name: name for name in rest if not _is_a_copy(base, task, name, own)}
    aliases = {alias: name for alias, name in base.aliases.items() if name in own and alias not in own}
    return _under_names(task, own, aliases)


def _under_names(task: Checkpoint, own: Mapping[str, str], aliases: Mapping[str, str]) -> Checkpoint:
    """The checkpoint with new names; ``own`` maps each to the current name."""
    return replace(
        task,
        tensors={name: task.tensors[target] for name, target in sorted(own.items())},
        aliases=aliases,
        file_names={name: file_name for name, target in own.items() if (file_name := task.file_name(target)) != name},
        arrays={name: task.arrays[target] for name, target in own.items()},
        file_of={name: task.file_of[target] for name, target in own.items() if target in task.file_of},
    )


def _renamed(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    if not _same_shapes(base, task):
        return task
    plain = _without_library(base, task)
    if not _same_shapes(base, plain):
        return plain
    if (model := library_model(task, base)) is None:
        if advice := library_advice(base, task):
            warn(f"the tensor names differ from those of {base.title}{advice}", task.title)
        return plain
    parts = model.in_parts(task)
    ours = {target: name for name, target in model.names(base.names).items()}
    names = model.names(parts.names)
    renamed = _with_names(parts, {name: ours.get(names.get(name, ""), name) for name in parts.names})
    return max(plain, renamed, key=lambda one: len(base.tensors.keys() & one.names))


def _same_shapes(base: Checkpoint, task: Checkpoint) -> bool:
    """Whether some tensor unknown to the base could be one that the task lacks: same shape, or several joined."""
    missing, extra = base.tensors.keys() - task.names, task.tensors.keys() - base.names
    shapes = {task.tensors[name].shape for name in extra}
    joined = any(len(shape) == 3 for shape in shapes)
    return bool(missing) and (joined or not shapes.isdisjoint(base.tensors[name].shape for name in missing))


def _without_library(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """Rename by legacy names, or by a prefix common to all names of one of the two."""
    ours, theirs = {modern(name): name for name in base.names}, {name: modern(name) for name in task.names}
    prefixes: Counter[tuple[str, str]] = Counter()
    if ours.keys().isdisjoint(theirs.values()):
        prefixes.update((prefix, "") for prefix in _prefixes(theirs.values(), ours))
        prefixes.update(("", prefix) for prefix in _prefixes(ours, set(theirs.values())))
    less, more = max(prefixes, key=prefixes.__getitem__, default=("", ""))
    keys = {name: more + key.removeprefix(less) for name, key in theirs.items()}
    return _with_names(task, {name: ours.get(key, name.removeprefix(less)) for name, key in keys.items()})


def _prefixes(names: Iterable[str], tails: Container[str]) -> Iterator[str]:
    """Prefixes whose removal gives one of the ``tails``."""
    for name in names:
        yield from (name[: at + 1] for at, sign in enumerate(name) if sign == "." and name[at + 1 :] in tails)


def _with_names(task: Checkpoint, names: Mapping[str, str]) -> Checkpoint:
    """The checkpoint with other names; unchanged if two names would collide."""
    if len(set(names.values())) < len(names):
        return task
    aliases = {names[alias]: names[of] for alias, of in task.aliases.items()}
    return _under_names(task, {names[name]: name for name in task.tensors}, aliases)


def _is_a_copy(base: Checkpoint, task: Checkpoint, name: str, own: Mapping[str, str]) -> bool:
    """Whether a tensor unknown to the base is a byte-identical copy of a tensor that it is tied to."""
    for one in own.keys() & base.tensors.keys():
        if task.tensors[own[one]] != task.tensors[name] or not task.same(task, name, own[one]):
            continue
        if (model := library_model(task, base)) is not None:
            names = model.names([name, one])
            if model.tie_group(names.get(name, name)) == model.tie_group(names.get(one, one)):
                return True
        elif len(task.tensors[name].shape) > 1 and _TABLE.search(one) and not _is_constant(task, name):
            return True
    return False


def _is_constant(task: Checkpoint, name: str) -> bool:
    """Whether all values are equal, as after some initialisations; equal bytes then do not prove a tie."""
    first = task.stored(name, 0, 1)
    return all((piece.reshape(-1, first.size) == first).all() for piece in task.raw_pieces(name))


def _tied_to(base: Checkpoint, task: Checkpoint, name: str) -> set[str]:
    """The task's tensors that transformers ties to a base tensor that the task lacks."""
    candidates = [one for one, info in task.tensors.items() if info.shape == base.tensors[name].shape]
    if not candidates or (model := library_model(task, base)) is None:
        return set()
    names = model.names([name, *candidates])
    group = model.tie_group(names.get(name, name))
    return {one for one in candidates if model.tie_group(names.get(one, one)) == group}
