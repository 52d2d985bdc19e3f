"""A small benchmark on disk, with everything that follows from it: three tasks of a model of two tensors."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallmasks import methods
from tallmasks.io.tensor_files import load_state, write_tensors
from tallmasks.masks.mask_grids import write_mask_grid
from tallmasks.vectors.task_vectors import compute_task_vector, write_multi_task_vector

TRAINABLE = ("a.weight", "b.bias")
FRACTIONS = (0.2, 0.1)
LAMBDAS = [0.2, 0.3, 0.4, 0.5, 0.6]


@dataclass(frozen=True)
class Chain:
    """The files, and the task vectors in memory as float32 [T, P']."""

    folder: Path
    tasks: tuple[str, ...]

    @property
    def task_vectors(self) -> dict[str, Path]:
        """Task-vector files by task."""
        return {task: self.folder / f"tau-{task}" for task in self.tasks}

    @property
    def vectors(self) -> np.ndarray:
        """The task vectors, computed by hand in the flat order."""
        before, after = (load_state(self.folder / "pretrained"), [load_state(self.folder / t) for t in self.tasks])
        return np.stack([np.concatenate([(s[n] - before[n]).ravel() for n in TRAINABLE]) for s in after])


def build(folder: Path, tasks: tuple[str, ...] = ("dtd", "cars", "mnist")) -> Chain:
    """Pretrained, checkpoints, task vectors, every merge of these alone, and the bundles of both masked merges."""
    draw = np.random.default_rng(0)
    pretrained = {
        "a.weight": draw.standard_normal((6, 5), dtype=np.float32),
        "b.bias": draw.standard_normal(13, dtype=np.float32),
        "c.frozen": np.ones(4, np.float32),
    }
    write_tensors(folder / "pretrained", pretrained, {})
    chain = Chain(folder, tasks)
    for task, path in chain.task_vectors.items():
        noise = {name: draw.integers(-3, 4, pretrained[name].shape).astype(np.float32) / 8 for name in TRAINABLE}
        write_tensors(folder / task, {name: pretrained[name] + noise[name] for name in TRAINABLE}, {})
        initial = {name: pretrained[name] for name in TRAINABLE}
        compute_task_vector(folder / "pretrained", folder / task, initial, path, {}, FRACTIONS)
    for merge in map(methods.get_merge, methods.merge_names()):
        if not merge.statistics:
            vectors = list(chain.task_vectors.values())
            write_multi_task_vector(merge, merge.name, vectors, folder / merge.name, {"recipe": merge.name})
    for name in ("sum", "ties_sum"):
        write_mask_grid(folder / f"masks-{name}", chain.task_vectors, folder / name, LAMBDAS, {"recipe": "r"})
    return chain
