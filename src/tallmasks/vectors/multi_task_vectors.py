"""Multi-task vectors: the task vectors of a benchmark merged into one flat file by a merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.tensor_files import new_flat, open_tensors
from tallmasks.vectors.task_vectors import MERGED_FORMAT, TaskVector, open_task_vectors


def write_multi_task_vector(
    merge: Callable[[Sequence[TaskVector], NDArray[np.float32]], None],
    name: str,
    task_vectors: Sequence[Path],
    out: Path,
    metadata: Mapping[str, str],
) -> None:
    """Merge task-vector files, in the order given.

    Args:
        merge: fills its second argument, float32 [P'], from task vectors of one layout.
        name: what the file says that it was merged by.
        task_vectors: the files.
        out: the new file.
        metadata: what it says of its making.

    Raises:
        TallmasksError: there is no task vector, or they differ in layout.
    """
    vectors = open_task_vectors(task_vectors)
    with new_flat(out, vectors[0].layout, {**metadata, "format": MERGED_FORMAT, "merge": name}) as new:
        merge(vectors, new.flat)


def open_multi_task_vector(path: Path | str) -> NDArray[np.float32]:
    """tau_MTL, float32 [P'], memory-mapped and read-only. Raises TallmasksError where the file is something else."""
    return open_tensors(path, MERGED_FORMAT).flat()
