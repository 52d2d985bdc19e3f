"""Opens one task's model of a bundle (`./bundle#cars`) as a checkpoint, without exporting it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle import Bundle, load_bundle
from tallmasks.bundles.finding_base import NoBase
from tallmasks.bundles.manifest import COMPANIONS, MANIFEST
from tallmasks.bundles.original_files import planned_originals
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.errors import TallmasksError
from tallmasks.io.dtypes import DTYPES
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, sha256_of
from tallmasks.vectors.checkpoints.names_of_base import named_as
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.multiples import PIECE


@dataclass(frozen=True, eq=False, kw_only=True)
class BundleModel(Checkpoint):
    """theta_0 plus the task's update, rounded to the base's dtypes, with the task's own tensors. Files and layout are
    the base's."""

    weights: TaskWeights
    manifest: Path

    def raw_bytes(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        name = self.aliases.get(name, name)
        if not self.weights.is_updated(name):
            return self.weights.constant(name, start, stop)
        info, first = self.info(name), start // PIECE
        width, last = DTYPES[info.dtype].width, -(-stop // PIECE)
        values = np.empty((min(last * PIECE, info.size) - first * PIECE) * width, np.uint8)
        for number in range(first, last):
            self.weights.write_updated(name, number, values[(number - first) * PIECE * width :][: PIECE * width])
        return values[(start - first * PIECE) * width : (stop - first * PIECE) * width]

    def sha256s(self) -> dict[str, str]:
        """The sha256 of bundle.json, which lists those of all other files, including the base's."""
        return {MANIFEST: sha256_of(self.manifest)}


def model_of(bundle: Bundle, task: str, title: str) -> BundleModel:
    """One task's model, with the tensor names of the base's files and the task's companion files. Raises TallmasksError
    if the bundle does not have the task or the base cannot be found."""
    weights = bundle.weights(task)
    base, model = weights.base, bundle.manifest.model(task)
    last = list(base.files)[-1]
    file_of = {name: file for name, file in base.file_of.items() if name in weights.tensors or name in weights.aliases}
    file_of |= {name: last for name in weights.tensors if name not in file_of}
    attributes = {one.name: getattr(base, one.name) for one in fields(Checkpoint)}
    attributes |= {"title": title, "origin": {"path": title}, "tensors": weights.tensors, "aliases": weights.aliases}
    is_like_base = not (model.own or model.missing or model.names)
    attributes |= {"file_of": file_of, "file_names": model.names, "indexes": base.indexes if is_like_base else {}}
    attributes["companions"] = {name: bundle.companion(task, name) for name in bundle.companion_names(task)}
    opened = BundleModel(**attributes, weights=weights, manifest=bundle.parts.location.file(MANIFEST))
    headers = {file: bundle.parts.checked(COMPANIONS + one.header) for file, one in model.originals.items()}
    return replace(opened, originals=planned_originals(opened, model, headers))


def open_model(spec: str | Path, base: Checkpoint | None = None) -> Checkpoint:
    """Like `open_checkpoint`, but also accepts BUNDLE#TASK. Tied tensors get the names they have in ``base``, which is
    also used if the bundle's recorded base is not found. Raises TallmasksError like `open_checkpoint` and
    `load_bundle`."""
    folder, mark, task = str(spec).rpartition("#")
    if mark and not os.path.lexists(folder) and os.path.lexists(str(spec).partition("#")[0]):
        folder, _, task = str(spec).partition("#")  # a task's name can contain it
    if not mark or os.path.lexists(spec):
        checkpoint = open_checkpoint(spec, base)
        return checkpoint if base is None else named_as(base, checkpoint)
    if not folder or not task:
        raise TallmasksError(f"{spec}: expected BUNDLE#TASK, for example ./bundle#cars")
    bundle = load_bundle(folder)
    bundle.manifest.check_task(task)
    try:
        return model_of(bundle, task, str(spec))
    except NoBase:
        if base is None:
            raise
        return model_of(load_bundle(folder, base), task, str(spec))
