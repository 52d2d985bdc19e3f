"""A bundle from what the workflow keeps: a flat multi-task vector, and planes of masks for a whole grid of lambdas."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_writer import BundleFacts, new_bundle
from tallmasks.bundles.update_kernels import pieces
from tallmasks.masks.mask_bundles import MaskBundle
from tallmasks.store.parallel import parallel


def write_from_planes(out: Path, facts: BundleFacts, merged: NDArray[np.float32], masks: MaskBundle) -> None:
    """Write a bundle of tau_MTL and each task's mask at its lambda, both split into the tensors of the layout.

    merged: float32 [P'] in the layout of ``masks``.  ``facts``: a mask lambda of the grid for every task; unchanged are
    all tensors of floats that the layout lacks.  A tensor begins at any bit of the flat planes and at the first bit of
    a byte in the bundle, so bits are packed anew, piece by piece.

    Raises TallmasksError as :func:`new_bundle`, and for a task or lambda that ``masks`` has not.
    """
    layout = masks.layout
    lambdas = {task: facts.mask_lambda[task] for task in facts.tasks}
    with new_bundle(out, facts) as new:

        def write(piece: tuple[str, int, int, int]) -> None:
            name, offset, start, stop = piece
            first, last = offset + start, offset + stop
            bits = {task: masks.packed_piece(task, value or 0.0, first, last) for task, value in lambdas.items()}
            new.write(name, start, merged[first:last], bits)

        tensors = zip(layout.names, layout.shapes, layout.offsets, strict=True)
        parallel(
            write,
            [(name, offset, *piece) for name, shape, offset in tensors for piece in pieces(math.prod(shape))],
        )
