"""Made-up statistics of tasks' data: Gram matrices of inputs and squared gradients, by tensor."""

from collections.abc import Sequence

import numpy as np

from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.merges import GRAMS, LEARNED, Statistic
from tallmasks.vectors.task_vectors import TaskVector
from toys.quadratic_network import QuadraticNetwork


def inputs(layout: Layout, task: int, rows: int = 40) -> dict[str, np.ndarray]:
    """Inputs of each matrix's layer, float64 [n, k]; all rows share a common part."""
    draw = np.random.default_rng([task, rows])
    widths = {name: shape[1] for name, shape in zip(layout.names, layout.shapes, strict=True) if len(shape) == 2}
    return {name: draw.normal(size=(rows, width)) + draw.normal(size=width) for name, width in widths.items()}


def made_up(statistic: Statistic, layout: Layout, task: int) -> dict[str, np.ndarray]:
    """A task's statistic, float32 by tensor."""
    if statistic is GRAMS:
        return {name: (x.T @ x / len(x)).astype(np.float32) for name, x in inputs(layout, task).items()}
    draw = np.random.default_rng([task, 1])
    sizes = zip(layout.names, layout.shapes, strict=True)
    return {name: (10.0**-task * draw.normal(size=shape) ** 4).astype(np.float32) for name, shape in sizes}


def learned(name: str, layout: Layout, tasks: Sequence[int]) -> dict[str, np.ndarray]:
    """The result of two learning steps of a merge, from made-up task vectors."""
    flats = [np.random.default_rng([task, 2]).normal(size=layout.size).astype(np.float32) for task in tasks]
    vectors = [TaskVector(flat, layout, {}) for flat in flats]
    return dict(methods.get_merge(f"{name}:steps=2").learned(QuadraticNetwork(vectors)))


def for_merge(name: str, layout: Layout, tasks: Sequence[int]) -> list[dict[str, np.ndarray]]:
    """The statistics that a merge needs of the tasks; empty if none."""
    statistic = methods.get_merge(name).statistics
    if statistic is LEARNED:
        return [learned(name, layout, tasks)]
    return [made_up(statistic, layout, task) for task in tasks] if statistic else []
