"""Merges that learn: the result minimises the loss, and the merge uses it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import later_reference
import reference
from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector
from task_statistics import QuadraticNetwork

LAYOUT = Layout(("a", "b"), ((6, 5), (7,)))


def vectors() -> list[TaskVector]:
    """Two task vectors that share half of their weights."""
    flats = np.random.default_rng(0).normal(size=(2, LAYOUT.size)).astype(np.float32)
    flats[0, ::4], flats[1, 1::4] = 0, 0
    return [TaskVector(flat, LAYOUT, {}) for flat in flats]


def entropies(network: QuadraticNetwork) -> Callable[[torch.Tensor], torch.Tensor]:
    """From an update to the mean entropy of a task's examples, summed over the tasks."""

    def entropy(logs: torch.Tensor) -> torch.Tensor:
        return torch.distributions.Categorical(logits=logs).entropy().mean()

    return lambda update: sum(network.value(update, task, 16, entropy) for task in range(len(network.task_vectors)))


@pytest.mark.parametrize(("name", "by"), [("adamerging:", "tensor"), ("adamerging_ties:keep=0.5,", "task")])
def test_adamerging_is_the_plain_statement(name: str, by: str) -> None:
    """The coefficients would not be those of least entropy, or outside the range that the paper allows."""
    merge, network = methods.get_merge(f"{name}by={by},steps=40,rate=0.05"), QuadraticNetwork(vectors(), [1.0, 2.5])
    flats = np.stack([one.flat for one in vectors()])
    if "ties" in name:
        trimmed = [flat * (abs(flat) >= reference.trim_threshold(flat, 0.5)) for flat in flats]
        flats = np.stack([flat * (np.sign(flat) == np.sign(np.sum(trimmed, axis=0))) for flat in trimmed])
    parts = list(LAYOUT.parts.values()) if by == "tensor" else [slice(0, LAYOUT.size)]
    expected = later_reference.adamerging(entropies(network), flats, parts, 40, 0.05)
    assert 1 in expected and expected.min() < 0.9
    learned = merge.learned(network)
    for place, of_tensor in enumerate(learned.values()):
        np.testing.assert_allclose(of_tensor, expected[:, min(place, len(parts) - 1)], atol=1e-4)
    out = np.empty(LAYOUT.size, np.float32)
    merge(vectors(), out, [learned])
    coefficients = np.concatenate([np.tile(learned["a"], (30, 1)), np.tile(learned["b"], (7, 1))]).T
    np.testing.assert_allclose(out, (coefficients * flats).sum(axis=0), rtol=1e-5, atol=1e-7)


def test_concrete_is_the_plain_statement() -> None:
    """The mask would keep the weights that it should drop, or the merge would use another mask."""
    merge, network = methods.get_merge("concrete:steps=25,rate=0.1"), QuadraticNetwork(vectors(), [0.9, 0.03])
    flats, parts = np.stack([one.flat for one in vectors()]), list(LAYOUT.parts.values())
    draws = torch.Generator().manual_seed(0)
    expected = later_reference.concrete(entropies(network), flats, parts, 25, 0.1, 0.3, draws)
    out = np.empty(LAYOUT.size, np.float32)
    merge(vectors(), out, [merge.learned(network)])
    np.testing.assert_allclose(out, 0.3 * expected * flats.sum(axis=0), rtol=1e-3, atol=1e-6)
    assert expected.max() > 1.2 > 0.8 > expected.min()
