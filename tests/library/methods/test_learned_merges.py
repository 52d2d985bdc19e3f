"""Merges that learn: the result minimises the loss, and the merge uses it."""

import numpy as np
import pytest

from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.rows import adamerging, concrete
from tallmasks.vectors.task_vectors import TaskVector
from toys.quadratic_network import QuadraticNetwork

LAYOUT = Layout(("a", "b"), ((6, 5), (7,)))


def vectors() -> list[TaskVector]:
    """Two task vectors that change different weights, so that each has its own best coefficient."""
    flats = np.random.default_rng(0).normal(size=(2, LAYOUT.size)).astype(np.float32)
    flats[0, ::2], flats[1, 1::2] = 0, 0
    return [TaskVector(flat, LAYOUT, {}) for flat in flats]


@pytest.mark.parametrize(("name", "by"), [("adamerging:", "tensor"), ("adamerging_ties:keep=1.0,", "task")])
def test_adamerging_finds_the_coefficients_of_least_entropy_in_0_to_1(name: str, by: str) -> None:
    """The coefficients would not be those of least entropy, or outside the range that the paper allows."""
    merge = methods.get_merge(f"{name}by={by},steps=40,rate=0.05")
    learned = merge.learned(QuadraticNetwork(vectors(), wanted=[0.6, 1.7]))
    for of_tensor in learned.values():
        np.testing.assert_allclose(of_tensor, [0.6, 1.0], atol=0.05)
    out = np.empty(LAYOUT.size, np.float32)
    merge(vectors(), out, [learned])
    coefficients = np.concatenate([np.tile(learned["a"], (30, 1)), np.tile(learned["b"], (7, 1))]).T
    np.testing.assert_allclose(out, (coefficients * [one.flat for one in vectors()]).sum(axis=0), rtol=1e-6)


def test_a_concrete_mask_keeps_the_weights_that_lower_the_entropy() -> None:
    """The mask would keep the weights that it should drop, or the merge would use another mask."""
    given, merge = vectors(), methods.get_merge("concrete:steps=25,rate=0.1")
    learned = merge.learned(QuadraticNetwork(given, wanted=[0.9, 0.03]))
    first = given[0].flat != 0
    mask = np.concatenate([learned[name].reshape(-1) for name in LAYOUT.names])
    assert mask[first].mean() > 1.1 > 0.9 > mask[~first].mean()
    out = np.empty(LAYOUT.size, np.float32)
    merge(given, out, [learned])
    np.testing.assert_allclose(out, 0.3 * mask * (given[0].flat + given[1].flat), rtol=1e-5)


def test_other_learning_code_is_another_merge() -> None:
    """After a change of the learning code, tables would still use the old coefficients."""
    one, other = (methods.Merge("mine", adamerging.weighted, learn=here.learn) for here in (adamerging, concrete))
    assert one.code != other.code
