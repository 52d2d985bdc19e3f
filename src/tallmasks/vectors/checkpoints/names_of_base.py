"""Rename a model's tensors to the names in its base. Names differ because pickles store both names of tied embeddings
and safetensors files only one, because models with a head add a prefix such as `vit.` to the names of their base, and
because transformers renames tensors when it loads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tallmasks.errors import warn
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.known_tensors import known_tensors, library_advice

# Name parts inserted by torch.compile, activation checkpointing and FSDP.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def unwrapped(name: str) -> str:
    for inserted in _WRAPPERS:
        name = name.replace(inserted, "")
    return name


def named_as(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """The task with the base's names, where transformers says that two names are one tensor; a byte-identical copy of
    a tied tensor is left out. Without transformers, only the prefix of all names may differ. Tensors unknown to the
    base keep their names."""
    if type(task) is not Checkpoint:  # LoRAs and models of bundles have the base's names
        return task
    task = _without_prefix(base, task)
    may_differ = _may_have_other_names(base, task)
    known = known_tensors({*base.names, *task.names}, task, base) if may_differ else {}
    if may_differ and task.tensors.keys() - base.names and (advice := library_advice(base, task)):
        warn(f"the tensor names differ from those of {base.title}{advice}", task.title)
    identities = {name: known[name].identity if name in known else name for name in (*base.names, *task.names)}
    candidates: dict[str, set[str]] = {}  # the task's tensors by identity
    for name in task.names:
        candidates.setdefault(identities[name], set()).add(task.aliases.get(name, name))
    names = {name: [name, *(alias for alias, of in base.aliases.items() if of == name)] for name in base.tensors}
    current: dict[str, str] = {}  # the present name by new name
    for name, of_tensor in names.items():
        same_name = {task.aliases.get(one, one) for one in of_tensor if one in task.names}
        targets = same_name or {target for one in of_tensor for target in candidates.get(identities[one], ())}
        first = min(targets, default="")
        if len(targets) > 1 and not all(task.same(task, target, first) for target in targets):
            current |= {target: target for target in targets}  # the base ties them and the task does not
        elif targets:
            current[name] = first
    copies = {identities[name]: target for name, target in current.items() if name in base.tensors}
    for name in task.tensors.keys() - current.values():
        if (target := copies.get(identities[name])) is None or not task.same(task, name, target):
            current[name] = name
    aliases = {alias: name for alias, name in base.aliases.items() if name in current and alias not in current}
    return _renamed(task, current, aliases)


def _may_have_other_names(base: Checkpoint, task: Checkpoint) -> bool:
    """Whether a tensor of the task could be one that it lacks, or an unknown one is a copy of another one."""
    extra = task.tensors.keys() - base.names
    lacking = {base.tensors[name].shape for name in base.tensors.keys() - task.names}
    return any(info.shape in lacking for info in task.tensors.values()) or any(
        task.same(task, name, one) for name in extra for one in task.tensors.keys() & base.names
    )


def _without_prefix(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """Rename if all names are the base's except for one prefix (DDP's `module.`) and for parts that wrappers insert."""
    names = {name: unwrapped(name) for name in task.names}
    ours, theirs = common_prefixes(base.names)[-1], common_prefixes(names.values())[-1]
    is_one_prefix = ours.endswith(theirs) or theirs.endswith(ours)
    tails = [{name.removeprefix(ours) for name in base.names}, {name.removeprefix(theirs) for name in names.values()}]
    if is_one_prefix and tails[0] == tails[1]:
        names = {name: ours + short.removeprefix(theirs) for name, short in names.items()}
    if len(set(names.values())) < len(names):
        return task
    aliases = {names[alias]: names[of] for alias, of in task.aliases.items()}
    return _renamed(task, {names[name]: name for name in task.tensors}, aliases)


def common_prefixes(names: Collection[str]) -> list[str]:
    """The module paths, with their last dot, that all names begin with: from "" to the longest."""
    prefixes = [""]
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        prefixes.append(f"{prefixes[-1]}{parts[0]}.")
    return prefixes


def _renamed(task: Checkpoint, current: Mapping[str, str], aliases: Mapping[str, str]) -> Checkpoint:
    """The checkpoint with new names; ``current`` maps each to the present name."""
    return replace(
        task,
        tensors={name: task.tensors[target] for name, target in sorted(current.items())},
        aliases=aliases,
        file_names={name: old for name, target in current.items() if (old := task.file_name(target)) != name},
        arrays={name: task.arrays[target] for name, target in current.items()},
        file_of={name: task.file_of[target] for name, target in current.items() if target in task.file_of},
    )
