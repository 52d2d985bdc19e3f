"""Masks for a grid, their agreement, consensus and statistics, compared with the reference implementation."""

import json

import numpy as np
import pytest

import reference
from chain import LAMBDAS, build
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout, open_tensors
from tallmasks.masks.consensus import agreement_profile, open_agreement, write_agreement
from tallmasks.masks.mask_bundles import apply_mask, open_mask_bundle
from tallmasks.masks.mask_statistics import from_input_to_output, statistics
from tallmasks.models.clip.tensor_names import layer_of
from tallmasks.results.illustrated_block import SIDE, illustrated_block
from tallmasks.vectors import kernels
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector
from tallmasks.vectors.task_vectors import TaskVector

CHOSEN = {"cars": 0.2, "dtd": 0.6, "mnist": 0.4}


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Three tasks and 43 weights, so that the last byte of a plane has padding bits."""
    return build(tmp_path_factory.mktemp("chain"))


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_every_mask_follows_the_equation(chain, merge):
    """A task's model would get other weights than TALL-masks select (with the untrimmed tau_t)."""
    bundle = open_mask_bundle(chain.folder / f"masks-{merge}")
    merged = open_multi_task_vector(chain.folder / merge)
    for task, vector in zip(chain.tasks, chain.vectors, strict=True):
        expected = [reference.mask(vector, merged, mask_lambda) for mask_lambda in LAMBDAS]
        np.testing.assert_array_equal(kernels.unpack_levels(bundle.planes(task), 43), np.sum(expected, 0))
        for mask_lambda, mask in zip(LAMBDAS, expected, strict=True):
            found = reference.unpacked(bundle, task, mask_lambda)
            assert found.dtype == bool
            np.testing.assert_array_equal(found, mask)
            assert bundle.density(task, mask_lambda) == mask.mean()
            np.testing.assert_array_equal(apply_mask(merged, found), np.where(mask, merged, 0))


def test_a_bundle_describes_itself(chain):
    """The file could not be read with its documentation alone."""
    bundle = open_mask_bundle(chain.folder / "masks-sum")
    assert (bundle.tasks, bundle.lambdas) == (chain.tasks, tuple(LAMBDAS))
    assert dict(zip(bundle.layout.names, bundle.layout.shapes, strict=True)) == {"a.weight": (6, 5), "b.bias": (13,)}
    tensors = open_tensors(chain.folder / "masks-sum")
    assert tensors.metadata.keys() == {"format", "recipe", "tasks", "lambdas", "layout", "content"}
    assert json.loads(tensors.metadata["lambdas"]) == LAMBDAS
    planes = tensors.read("cars")
    assert (planes.dtype, planes.shape) == (np.uint8, (3, 6))
    bits = np.unpackbits(planes, axis=1, bitorder="little")
    np.testing.assert_array_equal((bits[:, :43].T @ [1, 2, 4]), kernels.unpack_levels(planes, 43))
    assert not bits[:, 43:].any()


def test_a_task_or_lambda_that_is_not_in_the_bundle_is_an_error(chain):
    """A lambda outside the grid would silently give another lambda's mask."""
    bundle = open_mask_bundle(chain.folder / "masks-sum")
    with pytest.raises(ValueError):
        bundle.packed_mask("cars", 0.25)
    with pytest.raises(TallmasksError, match="sun397"):
        bundle.packed_mask("sun397", 0.2)


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_agreement_uses_each_tasks_own_lambda(chain, merge, tmp_path):
    """The consensus would be computed from masks that were not selected."""
    write_agreement(tmp_path / "agreement", chain.folder / f"masks-{merge}", CHOSEN, {})
    found = open_agreement(tmp_path / "agreement")
    merged = open_multi_task_vector(chain.folder / merge)
    masks = [reference.mask(v, merged, CHOSEN[t]) for t, v in zip(chain.tasks, chain.vectors, strict=True)]
    np.testing.assert_array_equal(found, reference.agreement(masks))


def test_the_profile_counts_weights_that_merge_to_zero_separately():
    """Weights that cancel in TIES would look like weights shared by every task."""
    counts = np.array([0, 0, 1, 3, 3, 3, 2, 0], np.uint8)
    merged = np.array([1, 0, 2, 0, -0.0, 5, 1, 3], np.float32)
    profile = agreement_profile(counts, merged, 4)
    assert profile.fractions == (3 / 8, 1 / 8, 1 / 8, 3 / 8, 0)
    assert profile.merged_zero == (1 / 8, 0, 0, 2 / 8, 0)
    assert sum(profile.fractions) == 1


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_statistics_match_the_unpacked_masks(merge, chain):
    """The figures would show other masks than those that are applied."""
    bundle, merged = open_mask_bundle(chain.folder / f"masks-{merge}"), open_multi_task_vector(chain.folder / merge)
    masks = {task: reference.unpacked(bundle, task, value) for task, value in CHOSEN.items()}
    found = statistics(bundle, CHOSEN, merged, layer_of)
    density = found["density"].set_index("task")
    for task, mask in masks.items():
        assert density.loc[task, "density"] == pytest.approx(mask.mean())
        assert density.loc[task, "merged_zero"] == pytest.approx((mask & (merged == 0)).mean())
        assert density.loc[task, "mask_lambda"] == CHOSEN[task]
    used = {task: mask & (merged != 0) for task, mask in masks.items()}
    overlap = found["overlap"].set_index(["task", "other"])["jaccard"]
    for one in CHOSEN:
        for other in CHOSEN:
            expected = (used[one] & used[other]).sum() / (used[one] | used[other]).sum()
            assert overlap[one, other] == pytest.approx(expected)
    assert len(overlap) == 9
    tensors = found["tensors"]
    assert tensors["weights"].sum() == bundle.layout.size == 43
    everywhere = (tensors["density"] * tensors["weights"]).sum() / 43
    assert everywhere == pytest.approx(np.mean([mask.mean() for mask in used.values()]))
    bias = tensors.set_index("kind").loc["biases"]
    start = bundle.layout.offsets[bundle.layout.names.index("b.bias")]
    assert bias["weights"] == 13
    assert bias["density"] == pytest.approx(np.mean([mask[start : start + 13].mean() for mask in used.values()]))


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        ("visual.conv1.weight", ("before", "patches")),
        ("visual.class_embedding", ("before", "embeddings")),
        ("visual.transformer.resblocks.11.attn.in_proj_weight", ("11", "attention in")),
        ("visual.transformer.resblocks.2.attn.out_proj.weight", ("2", "attention out")),
        ("visual.transformer.resblocks.2.mlp.c_fc.weight", ("2", "MLP in")),
        ("visual.transformer.resblocks.2.mlp.c_proj.bias", ("2", "biases")),
        ("visual.proj", ("after", "projection")),
        ("visual.something_new", ("after", "other")),
        # a ResNet's
        ("visual.bn3.weight", ("before", "norms")),
        ("visual.layer1.0.conv2.weight", ("0", "convolutions")),
        ("visual.layer4.2.downsample.1.weight", ("3", "norms")),
        ("visual.attnpool.q_proj.bias", ("after", "biases")),
    ],
)
def test_the_layer_of_a_tensor(tensor, expected):
    """A matrix would be assigned to the wrong layer, or layer 10 sorted before layer 2."""
    assert layer_of(tensor) == expected
    assert sorted(["after", "10", "before", "2"], key=from_input_to_output) == ["before", "2", "10", "after"]


LAYOUT = Layout(("a.bias", "b.weight", "c.weight"), ((50,), (40, 20), (30, 90)))


def test_the_illustrated_block_shows_real_masks() -> None:
    """The illustration would show masks that the method does not produce."""
    draw = np.random.default_rng(0)
    vectors = {task: TaskVector(draw.normal(size=LAYOUT.size).astype(np.float32), LAYOUT, {}) for task in "abcd"}
    table = illustrated_block(vectors, mask_lambda=0.4)
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
