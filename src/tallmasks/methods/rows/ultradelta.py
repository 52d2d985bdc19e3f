"""DARE for each task, and UltraDelta: a random few of the weights of each task vector, enlarged."""

from typing import Any

import numpy as np

from tallmasks.io.tensor_files import Layout
from tallmasks.methods import Fraction, PerTask, Vector, method, storage_formulas
from tallmasks.methods.rows.parts.arrays_and_tensors import array, beside
from tallmasks.vectors.multiples import is_vector

LEVELS = 15  # intervals of 4 bits
STEP = 0.01  # between the drop rates of the three groups of tensors


@method(
    name="dare_per_task",
    order=157,
    title="DARE per task",
    paper="Yu et al. 2024",
    usage=PerTask(),
    storage=storage_formulas.few_values,
    group="later",
)
def dare_per_task(task_vector: Vector, layout: Layout, *, keep: Fraction = 0.03) -> Any:
    """Every weight of a matrix with probability `keep`, divided by `keep`, otherwise 0. Vectors are unchanged."""
    out, random = array(task_vector).copy(), np.random.Generator(np.random.Philox(0))
    for tensor in layout.split(out).values():
        if not is_vector(tensor.shape):
            tensor *= (random.random(tensor.shape, np.float32) < keep) / np.float32(keep)
    return beside(out, task_vector)


@method(
    name="ultradelta",
    order=158,
    title="UltraDelta",
    paper="Wang et al. 2025, UltraDelta",
    usage=PerTask(),
    storage=storage_formulas.few_values,
    group="later",
)
def ultradelta(task_vector: Vector, layout: Layout, *, keep: Fraction = 0.03) -> Any:
    """Every matrix rounded to 16 even levels between its extremes; of each level a random fraction becomes 0, and the
    rest is divided by `keep`. The third of the weights in the matrices with the smallest standard deviation keeps 0.01
    less, and that in those with the largest 0.01 more.

    The official code (xiaohuiwang000/UltraDelta at 3a716da) also scales by the trace norms of all tasks, computes the
    third fraction so that exactly `keep` of all weights remain, and rounds vectors, too.
    """
    out, random = array(task_vector).copy(), np.random.Generator(np.random.Philox(0))
    matrices = {name: one for name, one in layout.split(out).items() if not is_vector(one.shape) and np.ptp(one)}
    total, done = sum(one.size for one in matrices.values()), 0
    for one in sorted(matrices.values(), key=lambda one: float(one.std(dtype=np.float64))):
        done += one.size
        group = min(-(-3 * done // total), 3)
        low, width = one.min(), np.ptp(one)
        levels = np.rint((one - low) / width * LEVELS)
        dropped = 1 - keep - STEP * (group - 2)
        for level in np.unique(levels):
            (places,) = np.nonzero(levels.reshape(-1) == level)
            levels.reshape(-1)[random.permutation(places)[: round(dropped * places.size)]] = np.nan
        one[...] = np.nan_to_num((levels / LEVELS * width + low) / np.float32(keep))
    return beside(out, task_vector)
