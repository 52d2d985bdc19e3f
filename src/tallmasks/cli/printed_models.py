"""Prints what is known about the models of `tallmasks merge` and `tallmasks compress`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rich.filesize import decimal

from tallmasks.errors import counted, name_some, warn
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.operations.agreed_files import agreed_files
from tallmasks.operations.merge_recipes import THIS_FOLDER
from tallmasks.operations.opened_models import Models
from tallmasks.operations.tensor_roles import Role, TensorRole, TensorRoles
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

IN_BUNDLE = {Role.MERGED: "compressed"}
IN_MERGED_FOLDER = {Role.OWN: "each task's own, in heads/"}
IN_LORA = {**IN_MERGED_FOLDER, Role.AVERAGED: "the base's"}
IN_LORA_OF_ONE = {**IN_LORA, Role.OWN: "the task's own, in the LoRA"}
_NAMED = 2
"""The most names of tensors in a line."""
_LISTED = 20
"""The most names of files in a printed list."""


def print_roles(
    roles: TensorRoles,
    of_base: Mapping[str, int],
    of_tasks: Mapping[str, Mapping[str, int]],
    words: Mapping[Role, str],
    every: bool = True,
) -> None:
    """Print what happens to the tensors, one line for each role and reason.

    Args:
        of_base, of_tasks: bytes of the tensors by name.
        words: for roles that have other words here.
        every: whether to print those that are merged or unchanged.
    """
    groups: dict[TensorRole, dict[str, int]] = {}
    for task, own in roles.of_tasks.items():
        for name, one in own.items():
            groups.setdefault(one, {})[name] = (of_base if one.role is Role.BASE_ONLY else of_tasks[task])[name]
    of_one = {name for own in roles.of_tasks.values() for name in own}
    for name, one in roles.of_base.items():
        if not (one.role is Role.UNCHANGED and name in of_one):
            groups.setdefault(one, {})[name] = of_base[name]
    for one in sorted(groups, key=lambda one: [*Role].index(one.role)):
        sizes, is_usual = groups[one], one.role in (Role.MERGED, Role.UNCHANGED)
        if every or not is_usual:
            role, reason = words.get(one.role, one.role.value), f" ({one.reason})" if one.reason else ""
            names = "" if is_usual else f": {name_some(sorted(sizes), _NAMED)}"
            print(f"  {role}: {counted(len(sizes), 'tensor')}, {decimal(sum(sizes.values()))}{reason}{names}")


def print_roles_of(models: Models, words: Mapping[Role, str], every: bool = True) -> None:
    """Print what happens to the tensors of these models; see `print_roles`."""
    of_tasks = {task: _sizes(one.tensors) for task, one in models.tasks.items()}
    print_roles(models.roles, _sizes(models.base.tensors), of_tasks, words, every)


def _sizes(tensors: Mapping[str, TensorInfo]) -> dict[str, int]:
    return {name: info.nbytes for name, info in tensors.items()}


def print_plan(models: Models, what: str, words: Mapping[Role, str], nbytes: int | None = None) -> None:
    """Print what would be read, done and written."""
    read = {"base": models.base, **models.tasks}
    for name, checkpoint in read.items():
        tensors = counted(len(checkpoint.tensors), "tensor")
        print(f"read   {name}: {checkpoint.title}, {tensors}, {decimal(checkpoint.nbytes)}")
    all_of, changed = models.base.layout.size, models.layout.size
    print(f"       {all_of:,} parameters, {changed:,} of them in tensors that some task changed")
    print(what)
    print_roles_of(models, words)
    output = f"{models.settings.output}: " if models.settings.output else ""
    if nbytes is not None:
        print(f"write  {output}about {decimal(nbytes)}")


def print_files(models: Models) -> None:
    """Print which files a bundle does not store."""
    left_out = {name for one in models.tasks.values() for name in one.left_out}
    if not models.base.is_folder:
        left_out.update(name for one in models.tasks.values() for name in one.companions)
    if left_out:
        print(f"  files of the tasks' folders that are not stored: {_listed(left_out)}")


def _listed(names: Iterable[str]) -> str:
    """Names of files, subfolders first, because a missing subfolder can change what a processor computes."""
    ordered = sorted(names, key=lambda name: ("/" not in name, name))
    return name_some(ordered, _LISTED)


def print_copied(base: Checkpoint, tasks: Mapping[str, Checkpoint] = MappingProxyType({})) -> None:
    """Print which files of the base's folder were copied, and which of its files or the tasks' were left out."""
    agreed = agreed_files(base, tasks) if tasks else {}
    if base.is_folder:
        copied = ", ".join(base.companions) or "nothing"
        print(f"  copied from {base.title}: {copied}{f'; left out: {_listed(base.left_out)}' if base.left_out else ''}")
    for name, file in agreed.items():
        print(f"  all tasks agree, so theirs: {name}{f' ({name_some(file.fields)})' if any(file.fields) else ''}")
    here = {*base.companions, *base.left_out, *base.files, *base.indexes, *agreed}
    if only := {name for one in tasks.values() for name in (*one.companions, *one.left_out)} - here:
        print(f"  only in the tasks' folders, so not copied: {_listed(only)}")


def print_lora(lines: Iterable[str], folder: object) -> None:
    """Print what is known about a LoRA that was written to a folder."""
    print(*(f"  {line.replace(THIS_FOLDER, str(folder))}" for line in lines), sep="\n")


def print_sizes(base: int, bundle: int, models: int, count: int) -> None:
    """Compare the bytes of base and bundle with those of the models; warn if they are not fewer."""
    these = "the model takes" if count == 1 else f"the {count} models take"
    print(f"base {decimal(base)} + bundle {decimal(bundle)}; {these} {decimal(models)}")
    if base + bundle >= models:
        warn("base and bundle together are not smaller than the models: keep the models, or compress more of them")
