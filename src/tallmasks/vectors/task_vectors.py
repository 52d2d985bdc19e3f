"""Task vectors tau_t = theta_t - theta_0 over the trainable tensors, and the multi-task vectors into which they are
merged, each in one flat file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout, new_flat, open_tensors
from tallmasks.vectors import kernels
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.weight_files import open_weight_files

FORMAT = "tallmasks/task_vector/1"
_OF_MERGES = "tallmasks/multi_task_vector/1"
_READ = 1 << 20


@dataclass(frozen=True)
class TaskVector:
    """A task vector: ``flat`` float32 [P'], memory-mapped and read-only.

    ``model``: the layout of all weights of the model, if ``layout`` has only those that some task changed.
    """

    flat: NDArray[np.float32]
    layout: Layout
    thresholds: dict[float, np.float32]  # smallest kept magnitude by kept fraction
    frozen: int = 0  # number of frozen values that fractions count besides the P' of ``flat``
    # spectral norm of a matrix's rounding error, by name; 0 if unknown
    rounding_error: Callable[[str], float] = lambda name: 0.0
    model: Layout | None = None

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of all weights of the model."""
        return (self.model or self.layout).by_name

    def threshold(self, fraction: float, *, of_trainable: bool = False) -> np.float32:
        """The smallest magnitude in the top ``fraction`` of all weights, frozen ones included unless ``of_trainable``.
        Stored thresholds are used if possible, others are computed exactly."""
        if of_trainable and self.frozen:
            return trim_threshold(self.flat, fraction)
        if fraction in self.thresholds:
            return self.thresholds[fraction]
        return trim_threshold(self.flat, fraction, self.frozen)


def trim_threshold(vector: NDArray[np.float32], fraction: float, frozen: int = 0) -> np.float32:
    """:func:`trim_thresholds` of one vector."""
    return trim_thresholds([vector], fraction, frozen)[0]


def trim_thresholds(vectors: Sequence[NDArray[np.float32]], fraction: float, frozen: int = 0) -> list[np.float32]:
    """The v of "keep |tau| >= v" for each of T vectors [P'], read in one pass.

    v is the n-th smallest magnitude of P = P' + ``frozen`` values (frozen ones are 0), n = P - int(fraction * P), as in
    the code of Wang et al. 2024. So int(fraction * P) + 1 of the P' values are kept, plus ties with the last.
    """
    size = vectors[0].size
    n = size - int(fraction * (size + frozen))
    if n <= 0:
        return [np.float32(0)] * len(vectors)
    return list(kernels.nth_magnitudes(lambda part: [vector[part] for vector in vectors], size, [n])[:, 0])


def compute_task_vector(
    pretrained: Path,
    checkpoint: Path,
    initial: Mapping[str, NDArray],
    out: Path,
    metadata: Mapping[str, str],
    fractions: Iterable[float],
    frozen: int = 0,
) -> None:
    """Write tau = float32(theta_t) - float32(theta_0) over the trainable tensors, piece by piece.

    ``initial``: theta_0, with the same tensors as ``checkpoint``; ``pretrained``: the file to name in messages. The
    metadata has the thresholds of the kept ``fractions``, counted over P' + ``frozen`` values.

    Raises TallmasksError if tensors are missing, extra, wrongly shaped, NaN or infinite.
    """
    after = open_weight_files({checkpoint.name: checkpoint}, title=str(checkpoint))
    layout = Layout.of(initial)
    if difference := layout.describe_difference(after.layout):
        raise TallmasksError(
            f"{after.title} does not fit the trainable tensors of {pretrained}: {difference}. Give the checkpoint of"
            " the same model, with its trainable tensors only."
        )
    with new_flat(out, layout, {**metadata, "format": FORMAT}) as new:
        for name, values in layout.split(new.flat).items():
            _subtract(pretrained, initial[name].reshape(-1), after, name, values.reshape(-1))
        thresholds = {repr(fraction): float(trim_threshold(new.flat, fraction, frozen)) for fraction in fractions}
        new.metadata |= {"thresholds": json.dumps(thresholds), "frozen": str(frozen)}


def open_task_vector(path: Path | str) -> TaskVector:
    """Open a file of :func:`compute_task_vector`, memory-mapped. Raises TallmasksError if it is something else."""
    tensors = open_tensors(path, FORMAT)
    thresholds = json.loads(tensors.metadata["thresholds"])
    return TaskVector(
        tensors.flat(),
        Layout.of(tensors),
        {float(fraction): np.float32(value) for fraction, value in thresholds.items()},
        int(tensors.metadata["frozen"]),
    )


def _subtract(pretrained: Path, before: NDArray, after: Checkpoint, name: str, out: NDArray[np.float32]) -> None:
    """Set ``out`` to theta_t - theta_0 for one flattened tensor, and check that it is finite."""
    for start in range(0, out.size, _READ):
        piece = slice(start, min(start + _READ, out.size))
        pair = [before[piece].astype(np.float32, copy=False), after.piece(name, piece.start, piece.stop)]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(pair[1], pair[0], out=out[piece])
        if not kernels.finite(out[piece]):
            files = (pretrained, after.title)
            bad = [path for path, values in zip(files, pair, strict=True) if not kernels.finite(values)]
            raise TallmasksError(
                f"{bad[0] if bad else after.title}: tensor {name} holds NaN or infinity, or a value too large to"
                " subtract in float32; expected finite numbers. The training diverged or the file is damaged: train"
                " or download it again."
            )


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
    with new_flat(out, vectors[0].layout, {**metadata, "format": _OF_MERGES, "merge": name}) as new:
        merge(vectors, new.flat, of_data)


def open_multi_task_vector(path: Path | str) -> NDArray[np.float32]:
    """tau_MTL, float32 [P'], memory-mapped and read-only. Raises TallmasksError if the file is something else."""
    return open_tensors(path, _OF_MERGES).flat()
