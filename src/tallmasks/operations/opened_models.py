"""The base and the fine-tuned models of a merge or bundle: opening and checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import OptionError, TallmasksError, grouped_warnings, name_some, warn
from tallmasks.io.atomic_files import refuse_existing, refuse_inside
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.merges import TensorPiece
from tallmasks.methods.registry import get_merge
from tallmasks.methods.streaming import Stream
from tallmasks.operations.input_warnings import start_comparing_configurations, warn_of_inputs
from tallmasks.progress import work_progress
from tallmasks.vectors.checkpoints.buffers import Buffer
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.fitting import base_only_tensors, check_fit, on_base, task_only_tensors, unchanged
from tallmasks.vectors.checkpoints.known_tensors import library_advice, start_known_tensors
from tallmasks.vectors.checkpoints.lora_folders import LoraCheckpoint
from tallmasks.vectors.checkpoints.uncompressed_tensors import start_uncompressed_tensors, uncompressed_tensors
from tallmasks.vectors.checkpoints.vocabularies import with_all_tokens, with_tokens_of
from tallmasks.vectors.lazy_vectors import ReadPiece

if TYPE_CHECKING:
    from tallmasks.operations.merge_settings import Settings


@dataclass(frozen=True)
class Excluded:
    """Tensors that are not merged.

    Attributes:
        names: names in the base or a task, including aliases.
        heads: by task, the tensors that are written beside the merged model.
    """

    names: frozenset[str] = frozenset()
    heads: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def without(self, checkpoint: Checkpoint) -> Checkpoint:
        if not self.names:
            return checkpoint
        tensors = {name: info for name, info in checkpoint.tensors.items() if name not in self.names}
        aliases = {alias: name for alias, name in checkpoint.aliases.items() if name not in self.names}
        return replace(checkpoint, tensors=tensors, aliases=aliases)


def tensors_left_out(
    base: Checkpoint,
    tasks: Mapping[str, Checkpoint],
    only: Sequence[str] = (),
    keep_base: Sequence[str] = (),
    heads: Sequence[str] | None = None,
) -> Excluded:
    """The tensors that patterns leave out, and with ``heads`` those that differ in shape or are not in every model.

    Args:
        only, keep_base: shell patterns of tensor names.
        heads: patterns of more tensors that each task keeps; None if tasks keep none.

    Raises TallmasksError if a pattern matches no tensor, or most of the base would be a head.
    """
    models = (base, *tasks.values())
    names_of: dict[str, list[str]] = {}  # all names of each tensor
    for one in models:
        for name in one.names:
            names_of.setdefault(one.aliases.get(name, name), []).append(name)
    for option, patterns in (("only", only), ("keep_base", keep_base), ("heads", heads or ())):
        for pattern in patterns:
            if not any(_fits(names, [pattern]) for names in names_of.values()):
                raise OptionError(f"{option}: {pattern}: no tensor name matches; the names are {name_some(names_of)}")
    left = [name for name, names in names_of.items() if (only and not _fits(names, only)) or _fits(names, keep_base)]
    of_heads: list[str] = []
    if heads is not None:
        constants = {name for one in models for name, kind in one.buffers.items() if kind is Buffer.CONSTANT}
        of_heads = [
            name
            for name, names in names_of.items()
            if name not in left and (_fits(names, heads) or not (name in constants or _is_shared(name, models)))
        ]
        size = sum(base.info(name).size for name in of_heads if name in base.names)
        if 2 * size > sum(info.size for info in base.tensors.values()):
            raise TallmasksError(
                f"heads: most of {base.title} would be kept as heads; use fine-tuned models of one base"
            )
        if inner := [name for name in of_heads if not _fits(names_of[name], heads) and _is_inside(name, models)]:
            raise TallmasksError(
                f"heads: some models lack {name_some(inner)}, but all models have that block. If tensor names differ"
                " between releases of transformers, save all models with one release; otherwise"
                f" `heads: {inner[0]}` keeps each task's tensor, and `keep_base: {inner[0]}` the base's"
            )
    tensors = {one.aliases.get(name, name) for name in (*left, *of_heads) for one in models}
    aliases = {alias for one in models for alias, name in one.aliases.items() if name in tensors}
    kept = {task: [name for name in of_heads if name in one.tensors] for task, one in tasks.items()}
    return Excluded(frozenset(tensors | aliases), {task: names for task, names in kept.items() if names})


def _fits(names: Iterable[str], patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _is_inside(name: str, models: Sequence[Checkpoint]) -> bool:
    """Whether some model lacks a tensor although every model has others of its block, such as `encoder.layer.0.`."""
    block = name[: max((match.end() for match in re.finditer(r"\.\d+\.", name)), default=0)]
    absent = any(name not in one.names for one in models)
    return absent and bool(block) and all(any(other.startswith(block) for other in one.names) for one in models)


def _is_shared(name: str, models: Sequence[Checkpoint]) -> bool:
    return all(name in one.names for one in models) and len({one.info(name).shape for one in models}) == 1


def open_models(settings: Settings, for_bundle: bool = False, exact: bool = False) -> Models:
    """Open all models and check that they fit.

    With ``for_bundle``, tasks may have tensors that the base lacks, and keep their buffers; see `Models`. Otherwise
    configurations begin to be compared, for `warn_of_configurations`. With ``exact``, they may be
    quantised.

    Raises TallmasksError if a model is missing, damaged or does not fit the base, or the output exists.
    """
    from tallmasks.bundles.bundle_models import open_model  # slow to import

    if settings.output:
        refuse_existing(settings.output, folder=settings.output.is_dir())
        specs = [settings.base, *(task.checkpoint for task in settings.tasks.values())]
        refuse_inside(settings.output, *specs, *(spec.rpartition("#")[0] for spec in specs))
    base = open_model(settings.base)
    check_fit(base, {}, exact=exact)  # a LoRA is opened on the base
    if settings.tokens == "union":
        start_known_tensors(base.names, base)  # to be built while the others are opened
    with grouped_warnings():
        tasks = {name: open_model(task.checkpoint, base) for name, task in settings.tasks.items()}
    if for_bundle and not exact:
        start_uncompressed_tensors(base, tasks.values())
    elif not for_bundle:
        start_comparing_configurations(base, tasks)
    if settings.tokens == "union":
        base, tasks = with_all_tokens(base, tasks)
    elif settings.tokens:
        tasks = {name: with_tokens_of(base, one) for name, one in tasks.items()}
    left_out = tensors_left_out(base, tasks, settings.only, settings.keep_base, settings.heads)
    task_only: dict[str, tuple[str, ...]] = {}
    base_only: dict[str, tuple[str, ...]] = {}
    full_tasks = tasks
    if for_bundle:
        reduced_base, tasks = left_out.without(base), {}
        for task, one in full_tasks.items():
            reduced = left_out.without(one)
            task_only[task] = task_only_tensors(reduced_base, reduced)
            base_only[task] = base_only_tensors(reduced_base, reduced)
            _check_shared(task, base, one, task_only[task], base_only[task])
            tasks[task] = on_base(base, one, task_only[task], base_only[task])
    models = Models(settings, base, tasks, left_out, for_bundle, exact, full_tasks, task_only, base_only)
    check_fit(models.reduced_base, models.reduced_tasks, models.buffers, exact)
    for name, expected in settings.sha256.items():
        if models.sha256s.get(name, {}) != dict(expected):
            raise TallmasksError(
                f"{name or 'the base'}: {models.checkpoints[name].title} has another sha256 than in the recipe; use the"
                " checkpoint of the recipe, or remove sha256 from it"
            )
    with grouped_warnings():
        # for an average, a model that equals the base counts like every other
        for name, one in models.reduced_tasks.items() if settings.method != "weight_averaging" else ():
            if all(one.same(models.reduced_base, tensor) for tensor in (*models.layout.names, *models.buffers)):
                warn("all weights are identical to the base's, so this model adds nothing", name)
    warn_of_inputs(models.base, models.tasks, models.layout, for_bundle or settings.tokens is not None)
    return models


def _check_shared(
    task: str, base: Checkpoint, one: Checkpoint, task_only: Sequence[str], base_only: Sequence[str]
) -> None:
    """Raise TallmasksError for a model that shares less than half of its weights, or of the base's, with the base."""
    other = f"has tensors that {base.title} does not have in this shape:"
    for checkpoint, names, kind in ((one, task_only, other), (base, base_only, "lacks")):
        if 2 * sum(checkpoint.info(name).size for name in names) > checkpoint.layout.size:
            raise TallmasksError(
                f"{task}: {one.title} {kind} {name_some(names)} ({len(names)} tensors in all), more than half of"
                f" {checkpoint.title}; expected a model that was fine-tuned from {base.title}, saved by the same"
                f" library{library_advice(base, one)}"
            )


@dataclass(frozen=True)
class Models:
    """The models to merge or compress.

    Attributes:
        tasks: the tasks' models with the base's tensors only.
        left_out: tensors that are not merged.
        for_bundle: whether each task keeps its buffers, and the tensors that the base lacks.
        exact: whether the method is lossless, so that heads are compressed like all tensors.
        full_tasks: the tasks' models with all of their tensors.
        task_only: by task, tensors that the base lacks.
        base_only: by task, tensors of the base that the task lacks.
    """

    settings: Settings
    base: Checkpoint
    tasks: Mapping[str, Checkpoint]
    left_out: Excluded = field(default_factory=Excluded)
    for_bundle: bool = False
    exact: bool = False
    full_tasks: Mapping[str, Checkpoint] = field(default_factory=dict)
    task_only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    base_only: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def reduced_base(self) -> Checkpoint:
        """The base without the tensors that are left out."""
        return self.left_out.without(self.base)

    @cached_property
    def reduced_tasks(self) -> dict[str, Checkpoint]:
        return {name: self.left_out.without(checkpoint) for name, checkpoint in self.tasks.items()}

    @property
    def checkpoints(self) -> dict[str | None, Checkpoint]:
        return dict([(None, self.base), *self.tasks.items()])

    @property
    def nbytes(self) -> tuple[int, int]:
        """Bytes of the base's and the tasks' weight files; LoRAs count with their base."""
        of_loras = self.base.nbytes * any(isinstance(one, LoraCheckpoint) for one in self.full_tasks.values())
        return self.base.nbytes, sum(one.nbytes for one in self.tasks.values()) + of_loras

    @cached_property
    def sha256s(self) -> dict[str | None, dict[str, str]]:
        """The sha256 of every weight file by model and name, without models that a commit of the hub identifies."""
        return {name: one.sha256s() for name, one in self.checkpoints.items() if "repository" not in one.origin}

    @cached_property
    def unchanged(self) -> tuple[str, ...]:
        """The float tensors that equal the base's in every task."""
        return unchanged(self.reduced_base, self.reduced_tasks)

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        """The tensors that differ in some task and are not compressed, if each task keeps its own: buffers, non-floats,
        and `uncompressed_tensors`."""
        if not self.for_bundle:
            return ()
        same, tasks = set(self.unchanged), self.reduced_tasks.values()  # compared first, while transformers is asked
        heads = set() if self.exact else uncompressed_tensors(self.reduced_base, self.full_tasks.values())
        weights = set(self.reduced_base.layout.names) - heads
        names = [name for name in self.reduced_base.tensors if name not in weights and name not in same]
        names = [name for name in names if all(has_its_form(self.reduced_base, one, name) for one in tasks)]
        return tuple(name for name in names if self.moves(name))

    @cached_property
    def layout(self) -> Layout:
        """The weights that some task changed. Raises TallmasksError if there are none."""
        same = {*self.unchanged, *self.buffers}
        changed = [name for name in self.reduced_base.layout.names if name not in same]
        if not (changed or self.buffers):
            raise TallmasksError("the weights of every task are identical to the base's: there is nothing to merge")
        return Layout(tuple(changed), tuple(self.base.tensors[name].shape for name in changed))

    def moves(self, name: str) -> bool:
        return not all(one.same(self.reduced_base, name) for one in self.reduced_tasks.values())

    def mean(self, piece: TensorPiece, weights: Mapping[str, float]) -> NDArray[np.float32]:
        """The tasks' mean by ``weights`` (default: 1 each); negative ones count as 0."""
        pieces = [one.piece(piece.name, piece.start, piece.stop) for one in self.tasks.values()]
        counted = [max(weights.get(task, 1.0), 0.0) for task in self.tasks]
        values = np.asarray(pieces, np.float64)
        return np.asarray(np.average(values, axis=0, weights=counted if any(counted) else None), np.float32)

    def progress(self, what: str, passes: int) -> AbstractContextManager[Callable[[int], None]]:
        return work_progress(what, passes * self.layout.size * len(self.tasks))

    def stream(self, progress: Callable[[int], None]) -> Stream:
        def change(checkpoint: Checkpoint) -> ReadPiece:
            def read(name: str, start: int, stop: int) -> NDArray[np.float32]:
                progress(stop - start)
                return checkpoint.difference(self.base, name, start, stop)

            return read

        changes = {name: change(checkpoint) for name, checkpoint in self.tasks.items()}
        frozen = self.reduced_base.layout.size - self.layout.size
        roundoff = [checkpoint.roundoff for checkpoint in self.tasks.values()]
        return Stream(self.layout, self.base.piece, changes, frozen, roundoff, self.base.layout)


def has_its_form(base: Checkpoint, task: Checkpoint, name: str) -> bool:
    """Whether a tensor of a task has the shape and kind of the base's."""
    if name not in base.names or name not in task.names:
        return False
    mine, theirs = base.info(name), task.info(name)
    return mine.shape == theirs.shape and (mine.dtype == theirs.dtype or (mine.is_float and theirs.is_float))


def passes(merge: str | None) -> int:
    """How often every task vector is read: once to write, and once more if the merge has to be prepared."""
    chosen = get_merge(merge) if merge else None
    return 1 + (chosen is not None and chosen.prepare is not None and chosen.over == "slices")
