"""Multi-task vectors: the task vectors of a benchmark merged into one flat file by a registered merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks import methods
from tallmasks.checkpoints import new_flat, open_tensors
from tallmasks.task_vectors import MERGED_FORMAT, open_task_vectors


def write_multi_task_vector(merge: str, task_vectors: Sequence[Path], out: Path, metadata: Mapping[str, str]) -> None:
    """Merge task-vector files, in the order given, by the registered merge of that name.

    Raises TallmasksError for an unknown merge, no task vector, or task vectors that differ in layout.
    """
    vectors = open_task_vectors(task_vectors)
    with new_flat(out, vectors[0].layout, {**metadata, "format": MERGED_FORMAT, "merge": merge}) as new:
        methods.get_merge(merge)(vectors, new.flat)


def open_multi_task_vector(path: Path | str) -> NDArray[np.float32]:
    """tau_MTL, float32 [P'], memory-mapped and read-only. Raises TallmasksError where the file is something else."""
    return open_tensors(path, MERGED_FORMAT).flat()
