"""Multi-task vectors: task vectors merged into one flat file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import new_flat, open_tensors
from tallmasks.vectors.task_vectors import TaskVector, open_task_vector

_FORMAT = "tallmasks/multi_task_vector/1"


def write_multi_task_vector(
    merge: Callable[[Sequence[TaskVector], NDArray[np.float32], Sequence[Mapping[str, NDArray[np.float32]]]], None],
    name: str,
    task_vectors: Sequence[Path],
    out: Path,
    metadata: Mapping[str, str],
    statistics: Sequence[Path] = (),
) -> None:
    """Merge task-vector files of one model, in the given order, into the new file ``out``.

    ``merge`` fills its second argument, float32 [P'], from the task vectors and each task's ``statistics``; ``name`` is
    the merge's name for the metadata.
    """
    vectors = list(map(open_task_vector, task_vectors))
    of_data = [{name: tensors.view(name) for name in tensors.names} for tensors in map(open_tensors, statistics)]
    with new_flat(out, vectors[0].layout, {**metadata, "format": _FORMAT, "merge": name}) as new:
        merge(vectors, new.flat, of_data)


def open_multi_task_vector(path: Path | str) -> NDArray[np.float32]:
    """tau_MTL, float32 [P'], memory-mapped and read-only. Raises TallmasksError if the file is something else."""
    return open_tensors(path, _FORMAT).flat()
