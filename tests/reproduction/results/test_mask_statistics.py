"""Statistics and the illustration of masks, compared with the reference implementation."""

import numpy as np
import pytest

import reference
from chain import build
from reproduction.models.clip.tensor_names import layer_of
from reproduction.results.illustrated_block import SIDE, illustrated_block
from reproduction.results.mask_statistics import from_input_to_output, statistics
from tallmasks.io.tensor_files import Layout
from tallmasks.masks.mask_grids import open_mask_grid
from tallmasks.vectors.task_vectors import TaskVector, open_multi_task_vector

CHOSEN = {"cars": 0.2, "dtd": 0.6, "mnist": 0.4}


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Three tasks and 43 weights, so that the last byte of a plane has padding bits."""
    return build(tmp_path_factory.mktemp("chain"))


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_statistics_match_the_unpacked_masks(merge, chain):
    """The figures would show other masks than those that are applied."""
    bundle, merged = open_mask_grid(chain.folder / f"masks-{merge}"), open_multi_task_vector(chain.folder / merge)
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
    nothing = statistics(bundle, CHOSEN, np.zeros_like(merged), layer_of)["overlap"]
    assert (nothing["jaccard"] == 1).all()  # empty masks are equal
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
        ("visual.transformer.resblocks.11.attn.in_proj_weight", ("11", "attention in")),
        ("visual.transformer.resblocks.2.attn.out_proj.weight", ("2", "attention out")),
        ("visual.transformer.resblocks.2.mlp.c_proj.bias", ("2", "biases")),
        ("visual.something_new", ("after", "other")),
        # a ResNet's
        ("visual.bn3.weight", ("before", "norms")),
        ("visual.layer4.2.downsample.1.weight", ("3", "norms")),
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


@pytest.mark.parametrize("shape", [(1024, 1), (1, 2816), (1, 40), (3, 1), (40, 30)])
def test_figure_1_shows_vectors_too(shape: tuple[int, int]) -> None:
    """Figure 1 of (IA)^3, which has no matrix, would be a line of pixels."""
    layout = Layout(("a", "b"), (shape, (2,)))
    draw = np.random.default_rng(0)
    vectors = {name: TaskVector(draw.normal(size=layout.size).astype(np.float32), layout, {}) for name in "pq"}
    table = illustrated_block(vectors, 0.4).query("row == 'vector' and block == 'p'")
    side = min(SIDE, *shape) if 1 not in shape else min(SIDE, max(1, max(shape) // SIDE))
    assert table["y"].max() + 1 == (side if max(shape) > 3 else 3)
    expected = layout.split(vectors["p"].flat)["a"]
    flat = expected[:SIDE, :SIDE] if 1 not in shape else expected.reshape(-1)[: len(table)]
    np.testing.assert_array_equal(table["value"].to_numpy(np.float32), flat.reshape(-1))
