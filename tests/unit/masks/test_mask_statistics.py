"""Densities and overlaps of masks, from hand-made ones; where a tensor lies in the network."""

from pathlib import Path

import numpy as np
import pytest

import reference
from chain import build
from tallmasks.masks.mask_bundles import open_mask_bundle
from tallmasks.masks.mask_statistics import from_input_to_output, statistics
from tallmasks.models.clip.tensor_names import place
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector

CHOSEN = {"cars": 0.2, "dtd": 0.6, "mnist": 0.4}


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_statistics_equal_the_plain_ones(merge: str, tmp_path: Path) -> None:
    """The figures would show other masks than those that are applied."""
    build(tmp_path)
    bundle, merged = open_mask_bundle(tmp_path / f"masks-{merge}"), open_multi_task_vector(tmp_path / merge)
    masks = {task: reference.unpacked(bundle, task, value) for task, value in CHOSEN.items()}
    found = statistics(bundle, CHOSEN, merged, place)
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
def test_places(tensor: str, expected: tuple[str, str]) -> None:
    """A matrix would be counted to the wrong layer; or layer 10 stand before layer 2."""
    assert place(tensor) == expected
    assert sorted(["after", "10", "before", "2"], key=from_input_to_output) == ["before", "2", "10", "after"]
