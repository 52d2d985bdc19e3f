"""Merges of later papers, compared with plain statements of their equations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import later_reference
import reference
from tallmasks import methods
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.rows.parts.block_numbers import depths
from tallmasks.methods.rows.parts.layers_in_blocks import is_linear_layer
from tallmasks.methods.rows.parts.seeded_draws import dropped, task_keys
from tallmasks.vectors.task_vectors import TaskVector

BLOCKS = {
    "visual.class_embedding": None,
    "visual.conv1.weight": None,
    "visual.proj": None,
    **{f"visual.blocks.{block}.{name}": block for block in range(3) for name in ("attn.weight", "mlp.bias")},
}
SHAPES = {
    "visual.class_embedding": (9,),
    "visual.conv1.weight": (4, 3, 2, 2),
    "visual.proj": (12, 6),
    **{name: (16, 12) if name.endswith("weight") else (16,) for name in BLOCKS if ".blocks." in name},
}
LAYOUT = Layout(tuple(sorted(SHAPES)), tuple(SHAPES[name] for name in sorted(SHAPES)))
MATRIX = "visual.blocks.1.attn.weight"
FROZEN = 150


def vectors(tasks: int = 3, seed: int = 0, frozen: int = 0) -> list[TaskVector]:
    """Task vectors like those of fine-tuning: small, with a common part and a few large values."""
    draw = np.random.default_rng(seed)
    flats = draw.standard_t(5, (tasks, LAYOUT.size)) + 0.5 * draw.normal(size=LAYOUT.size)
    return [TaskVector((1e-3 * flat).astype(np.float32), LAYOUT, {}, frozen) for flat in flats]


def merged(name: str, given: list[TaskVector]) -> dict[str, np.ndarray]:
    out = np.full(given[0].flat.size, np.nan, np.float32)
    methods.get_merge(name)(given, out)
    return given[0].layout.split(out)


def stacked(given: list[TaskVector], name: str) -> np.ndarray:
    return np.stack([LAYOUT.split(vector.flat)[name] for vector in given])


def flats(given: list[TaskVector]) -> np.ndarray:
    return np.stack([vector.flat for vector in given])


def check_means(found: dict[str, np.ndarray], given: list[TaskVector]) -> None:
    for name in ("visual.class_embedding", "visual.conv1.weight"):
        np.testing.assert_allclose(found[name], stacked(given, name).mean(0), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("unchanged", [0, 1, 3])
def test_tsv_m_is_the_plain_statement(unchanged: int) -> None:
    """The row would be another method, or tasks that did not change a matrix would affect its merge."""
    given = vectors()
    for vector in given[:unchanged]:
        LAYOUT.split(vector.flat)[MATRIX][...] = 0
    found = merged("tsv_m", given)
    for name in ("visual.proj", MATRIX) if unchanged < 3 else ("visual.proj",):
        np.testing.assert_allclose(found[name], later_reference.tsv_m(stacked(given, name)), rtol=1e-3, atol=1e-7)
    assert found[MATRIX].any() == (unchanged < 3)
    check_means(found, given)
    many = vectors(tasks=20)  # more tasks than singular values
    np.testing.assert_array_equal(merged("tsv_m", many)[MATRIX], stacked(many, MATRIX).mean(0))


@pytest.mark.parametrize("common", [0.8, 0.3, 1.0])
def test_iso_cts_is_the_plain_statement(common: float) -> None:
    """The row would be another method: it has shared and own directions, and one singular value."""
    given = vectors()
    found = merged(f"iso_cts:common={common}" if common != 0.8 else "iso_cts", given)
    for name in ("visual.proj", MATRIX):
        expected = later_reference.iso_cts(stacked(given, name), common)
        np.testing.assert_allclose(found[name], expected, rtol=1e-3, atol=1e-7)
        singular = np.linalg.svd(found[name], compute_uv=False)
        np.testing.assert_allclose(singular, singular.mean(), rtol=1e-4)
    check_means(found, given)


NAMES, CASES = ("tsv_m", "iso_c", "iso_cts", "swudi_a"), ("low rank", "equal", "opposed")


@pytest.mark.parametrize(("name", "case"), [*product(NAMES, CASES), ("dc_merge", "low rank")])
def test_a_merge_by_singular_vectors_ignores_noise(name: str, case: str) -> None:
    """LoRAs, and checkpoints that hardly differ, would be merged along directions that are only rounding errors."""
    draw = np.random.default_rng(0)
    low = (draw.normal(size=(8, 96, 4)) @ draw.normal(size=(8, 4, 96))).astype(np.float32)
    full = draw.normal(size=(96, 96)).astype(np.float32)
    matrices = {"low rank": low, "equal": np.stack([full, full]), "opposed": np.stack([low[0], -low[0]])}[case]
    noise = np.random.default_rng(1).normal(size=matrices.shape) * 1e-6 * matrices.std()
    layout = Layout(("m",), (matrices.shape[1:],))
    one, other = (
        merged(name, [TaskVector(matrix.reshape(-1), layout, {}) for matrix in given])["m"]
        for given in (matrices, (matrices + noise).astype(np.float32))
    )
    assert np.linalg.norm(one - other) < 1e-4 * np.linalg.norm(matrices[0])
    assert (np.linalg.norm(one) < 1e-5 * np.linalg.norm(matrices[0])) == (case == "opposed")


@pytest.mark.parametrize(("middle", "outliers"), [(0.15, 0.006), (0.5, 0.1), (1.0, 0.0)])
def test_breadcrumbs_is_the_plain_statement(middle: float, outliers: float) -> None:
    """Other weights would be kept: the method drops the largest and smallest of every row."""
    given = vectors()
    found = merged(f"breadcrumbs:middle={middle},outliers={outliers}", given)
    for name, values in found.items():
        expected = later_reference.breadcrumbs(stacked(given, name), middle, outliers)
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-9)


def test_wudi_is_the_plain_statement() -> None:
    """The optimisation would end elsewhere: its gradient must be that of the loss, and its Adam must equal torch's."""
    given = vectors()
    found = merged("wudi:steps=40", given)
    for name, block in BLOCKS.items():
        if block is None or not name.endswith("weight"):
            assert not found[name].any(), "other tensors stay pretrained"
            continue
        start, expected = stacked(given, name).sum(0), later_reference.wudi(stacked(given, name), 40)
        assert abs(expected - start).max() > 1e-4
        np.testing.assert_allclose(found[name], expected, atol=1e-7)
    layout = Layout(("h.0.fc.bias", "h.0.fc.weight"), ((16,), (12, 16)))  # the inputs first, as in GPT-2
    rows = [np.append(np.zeros(16), matrix.T).astype(np.float32) for matrix in stacked(given, MATRIX)]
    weight = merged("wudi:steps=40", [TaskVector(row, layout, {}) for row in rows])["h.0.fc.weight"]
    np.testing.assert_allclose(weight.T, found[MATRIX], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("unchanged", [0, 1, 3])
def test_swudi_a_is_the_plain_statement(unchanged: int) -> None:
    """The row would be another method: its number of directions, or its weight of each task, would differ."""
    given = vectors()
    for vector in given[:unchanged]:
        LAYOUT.split(vector.flat)[MATRIX][...] = 0
    found = merged("swudi_a", given)
    for name in ("visual.proj", MATRIX) if unchanged < 3 else ("visual.proj",):
        tensors = stacked(given, name)
        expected = later_reference.swudi_a(tensors)
        assert unchanged == 2 or abs(expected - tensors.sum(0)).max() > 1e-4
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-8)
    assert found[MATRIX].any() == (unchanged < 3)
    check_means(found, given)


def test_swudi_a_finds_the_side_of_the_inputs() -> None:
    """In GPT-2, whose matrices have the inputs first, the outputs would be taken for the inputs."""
    given = vectors()
    layout = Layout(("h.0.fc.bias", "h.0.fc.weight", "lm_head.weight"), ((16,), (12, 16), (16, 12)))
    parts = [(np.zeros(16), matrix.T.ravel(), matrix.ravel()) for matrix in stacked(given, MATRIX)]
    found = merged("swudi_a", [TaskVector(np.concatenate(part).astype(np.float32), layout, {}) for part in parts])
    np.testing.assert_allclose(found["h.0.fc.weight"].T, merged("swudi_a", given)[MATRIX], rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(found["lm_head.weight"], stacked(given, MATRIX).mean(0), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("keep", [0.001, 0.05, 1.0])
def test_dc_merge_is_the_plain_statement(keep: float) -> None:
    """The row would be another method: other values would be kept, or one task would change another's directions."""
    given = vectors()
    found = merged(f"dc_merge:keep={keep}", given)
    for name in ("visual.proj", MATRIX):
        expected = later_reference.dc_merge(stacked(given, name), keep)
        np.testing.assert_allclose(found[name], expected, rtol=1e-3, atol=1e-7)
    check_means(found, given)
    assert not merged("dc_merge", [TaskVector(0 * vector.flat, LAYOUT, {}) for vector in given])[MATRIX].any()


@pytest.mark.parametrize("frozen", [0, FROZEN])
def test_pcb_is_the_plain_statement(frozen: int) -> None:
    """Other values would win: quantiles and scores are over whole vectors, including frozen values."""
    given = vectors(frozen=frozen)
    found = LAYOUT.join(merged("pcb", given))
    np.testing.assert_allclose(found, later_reference.pcb(flats(given), frozen=frozen), rtol=1e-4, atol=1e-8)
    assert 0.02 < (found != 0).mean() < 0.5


def test_lines_is_the_plain_statement() -> None:
    """Layers would be scaled by another line, or tensors outside blocks would be scaled too."""
    given = vectors()
    total = LAYOUT.split(reference.sum_vectors(flats(given)))
    expected = later_reference.lines(total, BLOCKS, 1 / 3, 0.7)
    for name, values in merged("lines:beta=0.7", given).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-6)
    limits = [reference.trim_threshold(vector.flat, 0.2) for vector in given]
    ties = reference.ties(flats(given), limits, mean=True)
    alpha = abs(flats(given).sum(0)).sum() / (3 * abs(ties).sum())
    expected = later_reference.lines(LAYOUT.split(ties), BLOCKS, alpha, 0.5)
    for name, values in merged("lines_ties", given).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-5)


def test_blocks_and_linear_layers_are_recognised_by_name() -> None:
    """LiNeS and WUDI would treat a model with other names as if it had no layers."""
    names = ["encoder.block.0.q", "encoder.block.11.q", "decoder.block.0.q", "decoder.block.5.q", "shared.weight"]
    assert depths(names) == dict(zip(names, [0, 1, 0, 1, 0], strict=True))
    linear = ["visual.transformer.resblocks.0.mlp.c_fc.weight", "layers.0.attention.output_projection.weight"]
    others = ["visual.proj", "lm_head.weight", "text_projection", "heads.0.weight", "vision_model.head.layers.0.weight"]
    others += ["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "wte.weight"]
    assert all(is_linear_layer(name, (8, 8)) for name in linear)
    assert not is_linear_layer(linear[0], (8, 1)) and not any(is_linear_layer(name, (8, 8)) for name in others)


def test_weights_are_dropped_at_the_given_rate_and_keep_their_mean() -> None:
    """The merge would be stronger or weaker than the sum that it approximates."""
    ones = np.ones(100_000, np.float32)
    for drop in (0.0, 0.5, 0.9):
        found = dropped(ones, b"k" * 16, "a", 0, drop)
        assert set(np.unique(found)) <= {np.float32(0), np.float32(1) / np.float32(1 - drop)}
        assert abs((found == 0).mean() - drop) < 0.006 and abs(found.mean() - 1) < 0.02


def test_dare_is_the_plain_statement() -> None:
    """The remaining weights would be summed or trimmed as in another method."""
    given = vectors()
    keys = task_keys(given, 7)
    left = [
        LAYOUT.join(
            {n: dropped(v.reshape(-1), key, n, 0, 0.8).reshape(v.shape) for n, v in LAYOUT.split(one.flat).items()}
        )
        for one, key in zip(given, keys, strict=True)
    ]
    found = LAYOUT.join(merged("dare:drop=0.8,seed=7", given))
    np.testing.assert_array_equal(found, reference.sum_vectors(np.stack(left)))
    limits = [reference.trim_threshold(vector, 0.1) for vector in left]
    found = LAYOUT.join(merged("dare_ties:drop=0.8,keep=0.1,seed=7", given))
    np.testing.assert_array_equal(found, reference.ties(left, limits, mean=True))
    assert len({*keys, *task_keys(given, 8)}) == 6, "each task and seed has its own draws"
    assert not np.array_equal(LAYOUT.join(merged("dare", given)), LAYOUT.join(merged("dare:seed=1", given)))


def test_della_drops_small_weights_more_often() -> None:
    """It would be DARE, or a task would lose part of its length."""
    row = np.random.default_rng(0).normal(size=(1, 20_000)).astype(np.float32)
    layout = Layout(("a",), (row.shape,))
    (found,) = merged("della:drop=0.6,epsilon=0.3", [TaskVector(row[0], layout, {})])["a"]
    in_order = np.argsort(abs(row[0]))
    kept = [float((found[part] != 0).mean()) for part in np.array_split(in_order, 4)]
    np.testing.assert_allclose(kept, [0.175, 0.325, 0.475, 0.625], atol=0.03)
    np.testing.assert_allclose(abs(found).sum(), abs(row).sum(), rtol=1e-5)
    with pytest.raises(TallmasksError, match="drop"):
        merged("della:drop=0.2,epsilon=0.3", vectors())


@pytest.mark.parametrize("name", ["sce", "della:drop=0"])
def test_what_tasks_cancel_has_the_sign_plus(name: str) -> None:
    """Where two tasks are opposed, the merge would keep nothing, or another value than mergekit."""
    layout = Layout(("a",), ((2,),))
    given = [TaskVector(np.float32([own, 2]), layout, {}) for own in (1, -1)]
    np.testing.assert_array_equal(merged(name, given)["a"], [1, 2])
