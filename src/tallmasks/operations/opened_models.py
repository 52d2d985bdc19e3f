"""The base and the fine-tuned models of a merge or bundle, opened and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, grouped_warnings, warn
from tallmasks.io.atomic_files import refuse_existing, refuse_inside
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.merges import TensorPiece
from tallmasks.methods.registry import get_merge
from tallmasks.methods.streaming import Stream
from tallmasks.operations.input_warnings import warn_of_inputs
from tallmasks.operations.tensor_roles import Role, TensorRoles, excluded_tensors, tensor_roles, tensors_of_one
from tallmasks.progress import work_progress
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.fitting import check_fit, warn_of_constants
from tallmasks.vectors.checkpoints.lora_folders import LoraCheckpoint
from tallmasks.vectors.checkpoints.vocabularies import with_all_tokens, with_tokens_of
from tallmasks.vectors.lazy_vectors import ReadPiece

if TYPE_CHECKING:
    from tallmasks.operations.merge_settings import Settings


def open_models(settings: Settings, for_bundle: bool = False, exact: bool = False) -> Models:
    """Open all models, check that they fit, and find the role of each tensor.

    Args:
        for_bundle: whether each task keeps its buffers, and the tensors that the base lacks.
        exact: whether the method is lossless, so that weights may be quantised, and heads are compressed like others.

    Raises TallmasksError if a model is missing, damaged or does not fit the base, or the output exists.
    """
    from tallmasks.bundles.bundle_models import open_model  # slow to import

    if settings.output:
        refuse_existing(settings.output, folder=settings.output.is_dir())
        specs = [settings.base, *(task.checkpoint for task in settings.tasks.values())]
        refuse_inside(settings.output, *specs, *(spec.rpartition("#")[0] for spec in specs))
    base = open_model(settings.base)
    check_fit(base, {}, exact=exact)  # a LoRA is opened on the base
    with grouped_warnings():
        tasks = {name: open_model(task.checkpoint, base) for name, task in settings.tasks.items()}
    if settings.tokens == "union":
        base, tasks = with_all_tokens(base, tasks)
    elif settings.tokens:
        tasks = {name: with_tokens_of(base, one) for name, one in tasks.items()}
    excluded = excluded_tensors((base, *tasks.values()), settings.only, settings.keep_base, settings.heads)
    of_tasks = {task: tensors_of_one(task, base, one, excluded) for task, one in tasks.items()} if for_bundle else None
    not_shared = {task: {*excluded, *(of_tasks or {}).get(task, ())} for task in tasks}
    check_fit(base.without(excluded), tasks, not_shared, for_bundle, exact)
    models = Models(settings, base, tasks, tensor_roles(base, tasks, excluded, of_tasks, exact))
    warn_of_constants(
        base, tasks, {task: {*names, *models.roles.names(Role.OWN)} for task, names in not_shared.items()}
    )
    for name, expected in settings.sha256.items():
        if models.sha256s.get(name, {}) != dict(expected):
            raise TallmasksError(
                f"{name or 'the base'}: {models.checkpoints[name].title} has another sha256 than in the recipe; use the"
                " checkpoint of the recipe, or remove sha256 from it"
            )
    with grouped_warnings():
        # for an average, a model that equals the base counts like every other
        for task in tasks if settings.method != "weight_averaging" else ():
            moved = models.roles.names(Role.MERGED, *([Role.OWN] if for_bundle else []))
            if all(models.source(task, name).same(base, name) for name in moved):
                warn("all weights are identical to the base's, so this model adds nothing", task)
    shared = [name for name in models.layout.names if not any(name in own for own in models.roles.of_tasks.values())]
    sampled = Layout(tuple(shared), tuple(base.tensors[name].shape for name in shared))
    warn_of_inputs(base, tasks, sampled, for_bundle or settings.tokens is not None)
    return models


@dataclass(frozen=True)
class Models:
    """The models to merge or compress, and the role of each tensor."""

    settings: Settings
    base: Checkpoint
    tasks: Mapping[str, Checkpoint]
    roles: TensorRoles

    @property
    def checkpoints(self) -> dict[str | None, Checkpoint]:
        return dict([(None, self.base), *self.tasks.items()])

    @property
    def nbytes(self) -> tuple[int, int]:
        """Bytes of the base's and the tasks' weight files; LoRAs count with their base."""
        of_loras = self.base.nbytes * any(isinstance(one, LoraCheckpoint) for one in self.tasks.values())
        return self.base.nbytes, sum(one.nbytes for one in self.tasks.values()) + of_loras

    @cached_property
    def sha256s(self) -> dict[str | None, dict[str, str]]:
        """The sha256 of every weight file by model and name, without models that a commit of the hub identifies."""
        return {name: one.sha256s() for name, one in self.checkpoints.items() if "repository" not in one.origin}

    @cached_property
    def layout(self) -> Layout:
        """The weights that some task changed."""
        names = self.roles.names(Role.MERGED)
        return Layout(names, tuple(self.base.tensors[name].shape for name in names))

    @cached_property
    def heads(self) -> dict[str, list[str]]:
        """By task, the tensors that are written beside a merged model."""
        return self.roles.by_task(Role.OWN)

    def source(self, task: str, name: str) -> Checkpoint:
        """The model with a task's values of a tensor of the base: the base itself where the task has none."""
        return self.base if name in self.roles.of_tasks.get(task, ()) else self.tasks[task]

    def mean(self, piece: TensorPiece, weights: Mapping[str, float]) -> NDArray[np.float32]:
        """The tasks' mean by ``weights`` (default: 1 each); negative ones count as 0."""
        pieces = [one.piece(piece.name, piece.start, piece.stop) for one in self.tasks.values()]
        counted = [max(weights.get(task, 1.0), 0.0) for task in self.tasks]
        values = np.asarray(pieces, np.float64)
        return np.asarray(np.average(values, axis=0, weights=counted if any(counted) else None), np.float32)

    def progress(self, what: str, passes: int) -> AbstractContextManager[Callable[[int], None]]:
        return work_progress(what, passes * self.layout.size * len(self.tasks))

    def stream(self, progress: Callable[[int], None]) -> Stream:
        def change(task: str) -> ReadPiece:
            def read(name: str, start: int, stop: int) -> NDArray[np.float32]:
                progress(stop - start)
                return self.source(task, name).difference(self.base, name, start, stop)

            return read

        heads = {name for names in self.heads.values() for name in names}
        weights = self.base.layout.by_name.keys() - heads
        frozen = [name for name in self.roles.names(Role.UNCHANGED, Role.OWN) if name in weights]
        return Stream(
            self.layout,
            self.base.piece,
            {task: change(task) for task in self.tasks},
            sum(self.base.tensors[name].size for name in frozen),
            [partial(self._roundoff, task) for task in self.tasks],
            self.base.layout,
        )

    def _roundoff(self, task: str, name: str) -> float:
        return self.source(task, name).roundoff(name)


def passes(merge: str | None) -> int:
    """How often every task vector is read: once to write, and once more if the merge has to be prepared."""
    chosen = get_merge(merge) if merge else None
    return 1 + (chosen is not None and chosen.prepare is not None and chosen.over == "slices")
