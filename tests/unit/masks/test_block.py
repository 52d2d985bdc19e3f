"""Figure 1's block of weights."""

import numpy as np

import reference
from tallmasks.masks.block import SIDE, block
from tallmasks.store.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector

LAYOUT = Layout(("a.bias", "b.weight", "c.weight"), ((50,), (40, 20), (30, 90)))


def test_the_block_is_the_real_thing() -> None:
    """The illustration would show masks that the method does not make."""
    draw = np.random.default_rng(0)
    vectors = {task: TaskVector(draw.normal(size=LAYOUT.size).astype(np.float32), LAYOUT, {}) for task in "abcd"}
    table = block(vectors, mask_lambda=0.4)
    parts = {task: LAYOUT.split(vector.flat)["c.weight"][:SIDE, :SIDE] for task, vector in vectors.items()}
    merged = reference.sum_vectors([part.ravel() for part in parts.values()]).reshape(SIDE, SIDE)
    masks = {task: reference.mask(part, merged, 0.4) for task, part in parts.items()}
    consensus = reference.agreement(list(masks.values())) >= 2

    def shown(row: str, name: str) -> np.ndarray:
        some = table[(table["row"] == row) & (table["block"] == name)]
        return some.pivot(index="y", columns="x", values="value").to_numpy()

    for task in "abcd":
        np.testing.assert_array_equal(shown("vector", task), parts[task])
        np.testing.assert_array_equal(shown("mask", task), masks[task])
        np.testing.assert_array_equal(shown("masked", task), merged * masks[task])
    np.testing.assert_array_equal(shown("vector", "merged"), merged)
    np.testing.assert_array_equal(shown("mask", "merged"), consensus)
    np.testing.assert_array_equal(shown("masked", "merged"), merged * consensus)
