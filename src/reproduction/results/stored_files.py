"""The exact size of each method's files, computed from their layout and format.

Files that all methods need, such as zero-shot heads, and the metadata of artifacts are not counted.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.evaluation.records import Evaluation
from reproduction.models.families import family
from tallmasks import methods
from tallmasks.bundles.bundle_writer import BundleContents, fixed_bytes
from tallmasks.io.dtypes import FLOATS
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.io.tensor_files import TensorInfo, bytes_of_file, write_tensors
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint


@dataclass(frozen=True)
class StartingPoint:
    """theta_0 as files: the weights from which task vectors start.

    Attributes:
        base: the tensors, possibly including frozen ones.
        trainable: names of the tensors that fine-tuning changes.
        included: whether bundles contain the base, because no other file does.
        beside: bytes of other files that every model needs and fine-tuning does not change.
    """

    base: Checkpoint
    trainable: Collection[str]
    included: bool = False
    beside: int = 0


@contextmanager
def starting_point(spec: Mapping[str, Any], pretrained: Path) -> Iterator[StartingPoint]:
    """The starting point of a model's task vectors.

    Usually the file of pretrained weights; its origin is the path relative to the current folder, and the hub's
    repository and commit if it was downloaded.  The tensors of an adapter are not in that file: they are written to a
    temporary file, which bundles include.

    ``spec``: the model's settings in a recipe.
    """
    initial, checkpoint = family(spec).initial_state(spec, pretrained), open_checkpoint(pretrained)
    if initial.keys() <= checkpoint.tensors.keys():
        recorded = json.loads(checkpoint.metadata[pretrained.name].get("origin", "{}"))
        origin = {"path": os.path.relpath(pretrained)}
        if "repository" in recorded:
            origin |= {"repository": recorded["repository"], "revision": recorded["commit"]}
        yield StartingPoint(replace(checkpoint, origin=origin), tuple(initial))
        return
    with TemporaryFolder() as folder:
        file = folder / "initial.safetensors"
        write_tensors(file, {name: np.asarray(values) for name, values in initial.items()}, {})
        base = replace(open_checkpoint(file), origin={})
        yield StartingPoint(base, tuple(initial), included=True, beside=pretrained.stat().st_size)


def bundle_contents(method: str, tasks: Sequence[str], start: StartingPoint) -> BundleContents:
    """The contents of the bundle of a method for these tasks."""
    floats = [name for name, tensor in start.base.tensors.items() if tensor.dtype in FLOATS]
    row = methods.get(method)
    return BundleContents(
        method=method,
        base=start.base,
        tasks=tasks,
        **(row.codec.form(row.values) if row.codec else {}),
        unchanged=[name for name in floats if name not in start.trainable],
        include_base=start.included,
    )


def stored_gigabits(evaluation: Evaluation, start: StartingPoint) -> float | None:
    """Size in 1e9 bits, rounded to 4 decimals, of the files with the models of an evaluated method.

    One merged model: a file of the base's size.  Fine-tuned models: T checkpoints of the trainable tensors, and the
    base without the values that they replace.  A method with measured streams: the base and a bundle without its card.
    None for all others: `bundle` builds the files of masks, whose size depends on their values.
    """
    row, tensors, size = methods.get(evaluation.method), start.base.tensors, start.base.nbytes
    if row.section == "merging":
        stored = size
    elif row.stored_size(1, 1, 1).of_checkpoints:
        values = sum(FLOATS[tensors[name].dtype] * math.prod(tensors[name].shape) for name in start.trainable)
        infos = {name: TensorInfo("F32", tensors[name].shape) for name in start.trainable}
        stored = len(evaluation.tasks) * bytes_of_file(infos, {}) + size - values
    elif evaluation.coded_bytes:
        contents = bundle_contents(evaluation.method, evaluation.tasks, start)
        fixed = sum(fixed_bytes(contents).values()) + sum(evaluation.coded_bytes)
        stored = fixed + (0 if start.included else size)
    else:
        return None
    return round(8 * (stored + start.beside) / 1e9, 4)
