"""One task's model of a bundle as a checkpoint, `./bundle#cars`: what `tallmasks export` writes, without writing it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import open_place
from tallmasks.bundles.loaded_bundle import Bundle, load_bundle
from tallmasks.bundles.manifest import MANIFEST
from tallmasks.bundles.theta_0 import NoBase
from tallmasks.store.errors import TallmasksError
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, sha256_of
from tallmasks.vectors.checkpoints.float_bytes import narrowed
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.tied_names import named_as


@dataclass(frozen=True, eq=False, kw_only=True)
class BundleModel(Checkpoint):
    """A bundle's base with the update of one task, rounded to the base's dtypes; files and layout are the base's."""

    bundle: Bundle
    task: str
    manifest: Path

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        base, name = self.bundle.base, self.aliases.get(name, name)
        if name not in self.bundle.manifest.stored:
            return self.bundle.constant(self.task, name, start, stop)
        values = base.piece(name, start, stop) + self.bundle.update(self.task, name, start, stop)
        return narrowed(values, self.info(name).dtype, f"{self.title}: tensor {name}")

    def sha256s(self) -> dict[str, str]:
        """Of bundle.json, which names those of all other files, the base's too."""
        return {MANIFEST: sha256_of(self.manifest)}


def open_model(spec: str | Path, base: Checkpoint | None = None) -> Checkpoint:
    """As `open_checkpoint`, of BUNDLE#TASK too, with the names that ``base`` has for tied tensors.

    ``base`` is what a bundle is taken with whose own base is not to be had.  Raises TallmasksError as `open_checkpoint`
    and `load_bundle`.
    """
    place, mark, task = str(spec).rpartition("#")
    if not mark or os.path.lexists(spec):
        checkpoint = open_checkpoint(spec, base)
        return checkpoint if base is None else named_as(base, checkpoint)
    if not place or not task:
        raise TallmasksError(f"{spec}: expected BUNDLE#TASK, ./bundle#cars for instance")
    bundle = load_bundle(place)
    bundle.manifest.check_task(task)
    try:
        theta_0 = bundle.base
    except NoBase:
        if base is None:
            raise
        bundle = load_bundle(place, base)
        theta_0 = bundle.base
    facts = {one.name: getattr(theta_0, one.name) for one in fields(Checkpoint)}
    facts |= {"title": str(spec), "origin": {"path": str(spec)}}
    return BundleModel(**facts, bundle=bundle, task=task, manifest=open_place(place).file(MANIFEST))
