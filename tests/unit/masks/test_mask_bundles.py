"""Mask bundles: every mask of the grid as the equation has it, task by task, and what wrong requests get."""

import json

import numpy as np
import pytest

import reference
from chain import LAMBDAS, build
from tallmasks.masks.mask_bundles import apply_mask, open_mask_bundle, write_mask_bundle
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import open_tensors
from tallmasks.vectors import kernels
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Three tasks, 43 weights: the last byte of a plane is not full."""
    return build(tmp_path_factory.mktemp("chain"))


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_every_mask_is_the_equations(chain, merge):
    """A specialised model would take other weights of the merge than TALL-masks say (from the untrimmed tau_t)."""
    bundle = open_mask_bundle(chain.folder / f"masks-{merge}")
    merged = open_multi_task_vector(chain.folder / merge)
    for task, vector in zip(chain.tasks, chain.vectors, strict=True):
        expected = [reference.mask(vector, merged, mask_lambda) for mask_lambda in LAMBDAS]
        np.testing.assert_array_equal(kernels.unpack_levels(bundle.planes(task), 43), np.sum(expected, 0))
        for mask_lambda, held in zip(LAMBDAS, expected, strict=True):
            found = reference.unpacked(bundle, task, mask_lambda)
            assert found.dtype == bool
            np.testing.assert_array_equal(found, held)
            assert bundle.density(task, mask_lambda) == held.mean()
            np.testing.assert_array_equal(apply_mask(merged, found), np.where(held, merged, 0))


def test_a_bundle_describes_itself(chain):
    """Somebody with the file and its documentation alone could not read it."""
    bundle = open_mask_bundle(chain.folder / "masks-sum")
    assert (bundle.tasks, bundle.lambdas) == (chain.tasks, tuple(LAMBDAS))
    assert dict(zip(bundle.layout.names, bundle.layout.shapes, strict=True)) == {"a.weight": (6, 5), "b.bias": (13,)}
    tensors = open_tensors(chain.folder / "masks-sum")
    assert tensors.metadata.keys() == {"format", "recipe", "tasks", "lambdas", "layout", "content", "seal"}
    assert json.loads(tensors.metadata["lambdas"]) == LAMBDAS
    planes = tensors.read("cars")
    assert (planes.dtype, planes.shape) == (np.uint8, (3, 6))
    bits = np.unpackbits(planes, axis=1, bitorder="little")
    np.testing.assert_array_equal((bits[:, :43].T @ [1, 2, 4]), kernels.unpack_levels(planes, 43))
    assert not bits[:, 43:].any()


def test_what_is_not_in_the_bundle_is_named(chain):
    """A lambda beside the grid would give some other lambda's mask."""
    bundle = open_mask_bundle(chain.folder / "masks-sum")
    with pytest.raises(ValueError):
        bundle.packed_mask("cars", 0.25)
    with pytest.raises(TallmasksError, match="no tensor sun397"):
        bundle.packed_mask("sun397", 0.2)
    with pytest.raises(TallmasksError, match="expected tallmasks/multi_task_vector/1"):
        write_mask_bundle(chain.folder / "x", chain.task_vectors, chain.folder / "masks-sum", LAMBDAS, {})
