"""What the files of a method take on the disk, beside the paper's formula: from layout and format, to the byte.

Left out is what all methods need alike, such as zero-shot heads, and what an artifact of the store notes of its making.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from tallmasks import methods
from tallmasks.evaluation.records import Evaluation
from tallmasks.masks.task_bundle import BundleFacts, Theta0, bytes_of_bundle
from tallmasks.masks.task_bundle.manifest import FLOATS
from tallmasks.methods import bits
from tallmasks.store.tensor_files import TensorSpec, bytes_of_file


def bundle_facts(evaluation: Evaluation, base: Theta0, trainable: Collection[str]) -> BundleFacts:
    """What a bundle of an evaluation's tasks is made of, at the mask lambdas that were chosen, if any were.

    ``trainable``: the tensors that fine-tuning changes.
    """
    unchanged = [name for name, tensor in base.tensors.items() if tensor.dtype in FLOATS and name not in trainable]
    lambdas = evaluation.mask_lambda or (None,) * len(evaluation.tasks)
    return BundleFacts(
        method=evaluation.method,
        base=base,
        tasks=evaluation.tasks,
        unchanged=unchanged,
        mask_lambda=dict(zip(evaluation.tasks, lambdas, strict=True)),
    )


def stored_gigabits(evaluation: Evaluation, base: Theta0, trainable: Collection[str]) -> float | None:
    """Bits in 1e9 of the files that give an evaluated method's models, rounded to 4 decimals.

    One model: a file like the base's.  A model for each task: T checkpoints of the trainable tensors, and the base's
    file without the values that these replace.  Masked: the base's file, and a bundle in float32 without its card (the
    digits of EMR-Merging's scales in bundle.json, some 20 bytes a task, are not counted).  None where the project has
    no file format: magnitude pruning's sparse vectors, and what a method of one's own stores.
    """
    storage = methods.get(evaluation.method).storage
    whole = sum(path.stat().st_size for path in base.files.values())
    if storage is bits.single:
        stored = whole
    elif storage is bits.finetuned:
        tensors = {name: base.tensors[name] for name in trainable}
        values = sum(FLOATS[tensor.dtype] * math.prod(tensor.shape) for tensor in tensors.values())
        specs = {name: TensorSpec(np.dtype("<f4"), tuple(tensor.shape)) for name, tensor in tensors.items()}
        stored = len(evaluation.tasks) * bytes_of_file(specs, {}) + whole - values
    elif storage in (bits.masked, bits.masked_and_scaled):
        stored = whole + sum(bytes_of_bundle(bundle_facts(evaluation, base, trainable)).values())
    else:
        return None
    return round(8 * stored / 1e9, 4)
