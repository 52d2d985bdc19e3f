"""Agreement counts, the profile of the paper's histogram, and the consensus for every k."""

import numpy as np
import pytest

import reference
from chain import build
from tallmasks.masks.consensus import agreement_profile, open_agreement, write_agreement
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector

CHOSEN = {"dtd": 0.2, "cars": 0.6, "mnist": 0.4}


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Three tasks with bundles."""
    return build(tmp_path_factory.mktemp("chain"))


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_each_task_votes_with_its_own_lambda(chain, merge, tmp_path):
    """The consensus would rest on masks that nobody selected."""
    write_agreement(tmp_path / "agreement", chain.folder / f"masks-{merge}", CHOSEN, {})
    found = open_agreement(tmp_path / "agreement")
    merged = open_multi_task_vector(chain.folder / merge)
    masks = [reference.mask(v, merged, CHOSEN[t]) for t, v in zip(chain.tasks, chain.vectors, strict=True)]
    np.testing.assert_array_equal(found, reference.agreement(masks))


def test_profile_tells_apart_the_weights_that_merge_to_zero():
    """Weights that cancel in TIES would look like weights that every task shares."""
    counts = np.array([0, 0, 1, 3, 3, 3, 2, 0], np.uint8)
    merged = np.array([1, 0, 2, 0, -0.0, 5, 1, 3], np.float32)
    profile = agreement_profile(counts, merged, 4)
    assert profile.fractions == (3 / 8, 1 / 8, 1 / 8, 3 / 8, 0)
    assert profile.merged_zero == (1 / 8, 0, 0, 2 / 8, 0)
    assert sum(profile.fractions) == 1
