"""Masks for a grid, their agreement and consensus, compared with the reference implementation."""

import numpy as np
import pytest

import reference
from chain import LAMBDAS, build
from tallmasks.masks.consensus import agreement_profile, open_agreement, write_agreement
from tallmasks.masks.equal_lengths import lambda_without_data, lambdas_without_data
from tallmasks.masks.mask_grids import apply_mask, open_mask_grid
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import open_multi_task_vector

CHOSEN = {"cars": 0.2, "dtd": 0.6, "mnist": 0.4}


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Three tasks and 43 weights, so that the last byte of a plane has padding bits."""
    return build(tmp_path_factory.mktemp("chain"))


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_every_mask_follows_the_equation(chain, merge):
    """A task's model would get other weights than TALL-masks select (with the untrimmed tau_t)."""
    bundle = open_mask_grid(chain.folder / f"masks-{merge}")
    assert (bundle.tasks, bundle.mask_lambdas) == (chain.tasks, tuple(LAMBDAS))
    merged = open_multi_task_vector(chain.folder / merge)
    for task, vector in zip(chain.tasks, chain.vectors, strict=True):
        expected = [reference.mask(vector, merged, mask_lambda) for mask_lambda in LAMBDAS]
        np.testing.assert_array_equal(kernels.unpack_levels(bundle.planes(task), 43), np.sum(expected, 0))
        for mask_lambda, mask in zip(LAMBDAS, expected, strict=True):
            found = reference.unpacked(bundle, task, mask_lambda)
            assert found.dtype == bool
            np.testing.assert_array_equal(found, mask)
            assert bundle.density(task, mask_lambda) == mask.mean()
            for start, stop in ((0, 43), (3, 29), (8, 16), (30, 43), (7, 7)):
                piece = np.unpackbits(bundle.packed_piece(task, mask_lambda, start, stop), bitorder="little")
                np.testing.assert_array_equal(piece[: stop - start], mask[start:stop])
            np.testing.assert_array_equal(apply_mask(merged, found), np.where(mask, merged, 0))


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_agreement_uses_each_tasks_own_lambda(chain, merge, tmp_path):
    """The consensus would be computed from masks that were not selected."""
    write_agreement(tmp_path / "agreement", chain.folder / f"masks-{merge}", CHOSEN, {})
    found = open_agreement(tmp_path / "agreement")
    merged = open_multi_task_vector(chain.folder / merge)
    masks = [reference.mask(v, merged, CHOSEN[t]) for t, v in zip(chain.tasks, chain.vectors, strict=True)]
    np.testing.assert_array_equal(found, reference.agreement(masks))


def test_a_lambda_without_data_gives_the_length_of_the_task_vector():
    """The update would be larger or smaller than fine-tuning; or in a large model the last tensors alone decide."""
    vector, merged = np.random.default_rng(0).normal(size=(2, 3000)).astype(np.float32)
    merged[1500:] *= 9
    pieces = [slice(start, start + 20) for start in range(0, 3000, 20)]
    found = lambdas_without_data(1, lambda piece: ([vector[piece]], merged[piece]), pieces)
    assert found == [lambda_without_data(vector, merged)]
    assert abs(merged[reference.mask(vector, merged, found[0])]).sum() == pytest.approx(abs(vector).sum(), rel=0.01)
    few = sum(np.where(abs(one) > 1.3, one, np.float32(0)) for one in (vector, merged))[:1500]
    assert lambda_without_data(vector[:1500], few) > 0.5, "a short merged vector is not in the mask as a whole"


def test_the_profile_counts_weights_that_merge_to_zero_separately():
    """Weights that cancel in TIES would look like weights shared by every task."""
    counts = np.array([0, 0, 1, 3, 3, 3, 2, 0], np.uint8)
    merged = np.array([1, 0, 2, 0, -0.0, 5, 1, 3], np.float32)
    profile = agreement_profile(counts, merged, 4)
    assert profile.fractions == (3 / 8, 1 / 8, 1 / 8, 3 / 8, 0)
    assert profile.merged_zero == (1 / 8, 0, 0, 2 / 8, 0)
    assert sum(profile.fractions) == 1
