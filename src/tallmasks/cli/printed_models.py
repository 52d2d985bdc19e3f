"""Prints what is known about the models of `tallmasks merge` and `tallmasks compress`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rich.filesize import decimal

from tallmasks.errors import counted, name_some, warn
from tallmasks.operations.agreed_files import agreed_files
from tallmasks.operations.opened_models import Models, has_its_form
from tallmasks.vectors.checkpoints.buffers import Buffer
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.uncompressed_tensors import is_small

_LISTED = 20
"""The most names of files in a printed list."""


def print_buffers(models: Models) -> None:
    """Print which tensors are treated as buffers, and where their values come from."""
    every = [models.reduced_base, *models.reduced_tasks.values()]
    buffers = {name: kind for one in every for name, kind in one.buffers.items()}
    moved = [name for name in models.buffers if name in buffers] if models.for_bundle else models.reduced_base.averages
    rest = sorted(buffers.keys() - moved)
    everywhere = [name for name in rest if all(has_its_form(models.reduced_base, one, name) for one in every)]
    floats = [name for name in everywhere if models.reduced_base.info(name).is_float or buffers[name] is Buffer.COUNTER]
    for names, what in (
        (moved, "kept per task" if models.for_bundle else "averaged over the tasks"),
        (floats, "taken from the base"),
        (sorted(set(rest) - set(everywhere)), "missing or of another shape in some models, so taken from the base"),
    ):
        if names:
            print(f"  buffers (not weights), {what}: {name_some(names, 2)}")


def print_plan(models: Models, what: str, nbytes: int | None = None) -> None:
    """Print what would be read, done and written."""
    read = {"base": models.base, **models.tasks}
    for name, checkpoint in read.items():
        tensors = counted(len(checkpoint.tensors), "tensor")
        print(f"read   {name}: {checkpoint.title}, {tensors}, {decimal(checkpoint.nbytes)}")
    all_of, changed = models.base.layout.size, models.layout.size
    print(f"       {all_of:,} parameters, {changed:,} of them in tensors that some task changed")
    print(what)
    print_buffers(models)
    output = f"{models.settings.output}: " if models.settings.output else ""
    if nbytes is not None:
        print(f"write  {output}about {decimal(nbytes)}")


def print_own(models: Models) -> None:
    """Print which tensors a bundle stores whole or leaves out, and which files it does not store."""
    of_tasks = {name for of_task in models.task_only.values() for name in of_task}
    shared = {*models.buffers}.difference(models.reduced_base.buffers)
    small = {name for name in shared - of_tasks if is_small(models.reduced_base.tensors[name].shape)}
    if names := sorted((of_tasks | shared) - small):
        and_small = f", and {len(small)} vectors and small tensors" if small else ""
        print(f"  stored whole per task: {name_some(names)}{and_small}")
    elif small:
        print(f"  stored whole per task: {name_some(sorted(small))}")
    if names := sorted({name for of_task in models.base_only.values() for name in of_task}):
        print(f"  some tasks' models do not have these tensors, and are restored without them: {name_some(names)}")
    left_out = {name for one in models.full_tasks.values() for name in one.left_out}
    if not models.base.is_folder:
        left_out.update(name for one in models.full_tasks.values() for name in one.companions)
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


def print_sizes(base: int, bundle: int, models: int, count: int) -> None:
    """Compare the bytes of base and bundle with those of the models; warn if they are not fewer."""
    these = "the model takes" if count == 1 else f"the {count} models take"
    print(f"base {decimal(base)} + bundle {decimal(bundle)}; {these} {decimal(models)}")
    if base + bundle >= models:
        warn("base and bundle together are not smaller than the models: keep the models, or compress more of them")
