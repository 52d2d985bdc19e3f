"""Merges, masks and choices computed in memory equal those of the pipeline."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import reference
from reproduction.evaluation.choice import choose_coefficient, choose_per_task
from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.evaluation.method_evaluation import Tuner
from reproduction.evaluation.sweeps import TaskSubset, sample
from reproduction.models.clip.clip_examples import ClipExamples
from reproduction.models.families import Model, load
from small_clip import SPEC, save_random
from tallmasks import methods
from tallmasks.bundles.codings import Levels, in_few_bits
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.levels import fitted_levels
from tallmasks.vectors.task_vectors import TaskVector
from tiny_worlds.drawn import examples

NAMES = ("cars", "mnist")
ALPHAS = [0.0, 0.5, 1.0]
LAMBDAS = [0.2, 0.4, 0.6]
GRIDS = {"scaling_coefficient": ALPHAS, "mask_lambda": LAMBDAS}
HEAD = np.random.default_rng(1).normal(size=(10, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_random(path)
    return load(SPEC, path)


@pytest.fixture(scope="module")
def evaluator(model: Model) -> Evaluator:
    data = [
        TaskData(
            name, {split: ClipExamples(*examples(name, split, 60, seed=0), HEAD) for split in ("validation", "test")}
        )
        for name in NAMES
    ]
    return Evaluator(model, data)


@pytest.fixture(scope="module")
def vectors(model: Model) -> dict[str, TaskVector]:
    draw = np.random.default_rng(0)
    layout = Layout(model.trainable, tuple(model.shapes.values()))
    return {name: TaskVector(draw.normal(0, 0.1, layout.size).astype(np.float32), layout, {}) for name in NAMES}


def rounded(tensor: NDArray) -> NDArray:
    """A tensor in 3 bits: the nearest level for each weight of a row, scaled to the row's length; vectors unchanged."""
    coding = in_few_bits(tensor.shape, 3)
    if not isinstance(coding, Levels):
        return tensor
    levels, rows = fitted_levels(tensor, coding.group, 3), tensor.reshape(-1, coding.group).astype(np.float64)
    relative = rows / np.sqrt((rows**2).mean(1, keepdims=True))
    nearest = levels[np.abs(relative[..., None] - levels).argmin(-1)]
    return nearest * np.linalg.norm(rows, axis=1, keepdims=True) / np.linalg.norm(nearest, axis=1, keepdims=True)


def plain(vectors: dict[str, TaskVector], evaluator: Evaluator) -> dict[str, list[np.ndarray]]:
    """Every method's update for each task, from the plain statements, at the lambdas chosen on validation data."""
    flats = [vector.flat for vector in vectors.values()]
    limits = [reference.trim_threshold(flat, 0.2) for flat in flats]
    merges = {
        "sum": reference.sum_vectors(flats),
        "ties_sum": reference.ties(flats, limits, mean=False),
        "ties_mean": reference.ties(flats, limits, mean=True),
    }
    found = {
        "zeroshot": [np.zeros_like(flats[0])] * 2,
        "weight_averaging": [merges["sum"] * np.float32(0.5)] * 2,
        "task_arithmetic": [merges["sum"]] * 2,
        "ties": [merges["ties_mean"]] * 2,
        "fine_tuned": flats,
        "magnitude_masking": [
            np.where(np.abs(flat) >= reference.trim_threshold(flat, 0.1), merges["sum"], 0) for flat in flats
        ],
        "magnitude_pruning": [reference.trim(flat, reference.trim_threshold(flat, 34 / 64)) for flat in flats],
    }
    layout = next(iter(vectors.values())).layout
    stacked = {name: np.stack([layout.split(flat)[name] for flat in flats]) for name in layout.names}
    found["iso_c"] = [np.concatenate([reference.iso_c(stacked[name]).ravel() for name in layout.names])] * 2
    found["lloyd_max"] = [
        np.concatenate([rounded(part).ravel() for part in layout.split(flat).values()]) for flat in flats
    ]
    found["emr"] = reference.emr(np.stack(flats), list(pairwise([*layout.offsets, layout.size])))
    for merge, suffix in (("sum", "task_arithmetic"), ("ties_sum", "ties")):
        masks = [[reference.mask(flat, merges[merge], value) for value in LAMBDAS] for flat in flats]
        curve = evaluator.own("validation", lambda t, m=masks, w=merges[merge]: iter([w * mask for mask in m[t]]), 3)
        chosen = [m[place] for m, place in zip(masks, choose_per_task(curve), strict=True)]
        found[f"tall_mask_{suffix}"] = [merges[merge] * mask for mask in chosen]
        agreed = reference.agreement(chosen)
        for k, ending in ((2, ""), (1, "_k1")):
            found[f"consensus_{suffix}{ending}"] = [merges[merge] * (agreed >= k)] * 2
    return found


@pytest.mark.parametrize("name", methods.names("paper"))
def test_every_method_equals_the_plain_statement(
    name: str, evaluator: Evaluator, vectors: dict[str, TaskVector], model: Model
) -> None:
    """Figure 5 would show other models than the tables."""
    tune = partial(Tuner, evaluator, finetuned=[0.9, 0.8])
    found = TaskSubset(vectors, model.initial().numpy(), tune, evaluator, GRIDS).evaluate(methods.get(name))
    statements = plain(vectors, evaluator)
    if name not in statements:
        assert name not in reference.PAPER_ROWS, "every shipped method has a plain statement"
        pytest.skip("a user's own method, which has no plain statement")
    updates = [update.astype(np.float32) for update in statements[name]]
    assert (found.method, found.tasks) == (name, NAMES)
    if isinstance(methods.get(name).protocol, methods.Scaled):
        grid = methods.get(name).protocol.grid(GRIDS)
        curve = evaluator.scaled("validation", updates[0], grid)
        place = choose_coefficient(curve, evaluator.totals("validation"), [0.9, 0.8], NAMES)
        assert found.scaling_coefficient == grid[place] and found.curve == tuple(map(tuple, curve))
        expected = {split: evaluator.scaled(split, updates[0], [grid[place]]) for split in ("validation", "test")}
    else:
        expected = {
            split: evaluator.own(split, lambda task: iter([updates[task]]), 1) for split in ("validation", "test")
        }
    assert found.correct == {split: [row[0] for row in rows] for split, rows in expected.items()}
    if isinstance(methods.get(name).protocol, methods.Masked):  # chosen on validation data
        assert found.mask_lambda == tuple(LAMBDAS[place] for place in choose_per_task(found.curve))
    assert found.total == {"validation": [60, 60], "test": [60, 60]}


@given(total=st.integers(1, 50), count=st.integers(1, 60))
def test_a_sample_is_fixed_and_without_replacement(total: int, count: int) -> None:
    """Two methods would be compared on different images, or some images would count twice."""
    whole = ClipExamples(np.arange(total, dtype=np.uint8).reshape(-1, 1, 1, 1), np.arange(total), HEAD)
    one, other = sample(whole, count), sample(whole, count)
    assert one.labels.tolist() == other.labels.tolist() == sorted(set(one.labels.tolist()))
    assert len(one.labels) == min(total, count)
    pixels = np.empty((len(one), 1, 1, 1), np.uint8)
    one.read_into(pixels)
    assert pixels.reshape(-1).tolist() == one.labels.tolist()


def test_a_sample_covers_the_whole_split() -> None:
    """Of data sorted by class, only some classes would be sampled."""
    whole = ClipExamples(np.zeros((1000, 1, 1, 1), np.uint8), np.arange(1000), HEAD)
    assert sample(whole, 100).labels.mean() == pytest.approx(500, abs=100)
    assert sample(whole, None) is whole


def test_a_tuned_option_is_chosen_on_validation_data(
    evaluator: Evaluator, vectors: dict[str, TaskVector], model: Model
) -> None:
    """LiNeS would have one slope for all models, or a slope chosen on test data."""
    method, pretrained = methods.get("lines"), model.initial().cpu().numpy()
    assert (method.tuned, method.protocol.grid(GRIDS)) == ("beta", tuple(np.arange(1, 11) / 10))
    grid, finetuned = [0.1, 1.0], [0.5, 0.5]
    subset = TaskSubset(vectors, pretrained, lambda _: Tuner(evaluator, grid, finetuned), evaluator, GRIDS)
    found = subset.evaluate(method)
    curves: dict[str, list[list[int]]] = {"validation": [], "test": []}
    for beta in grid:
        merged = np.empty_like(pretrained)
        methods.get_merge(f"lines:beta={beta}")(list(vectors.values()), merged)
        for split, curve in curves.items():
            curve.append([row[0] for row in evaluator.scaled(split, merged, [1.0])])
    assert found.curve == tuple(zip(*curves["validation"], strict=True))
    best = choose_coefficient(list(found.curve), evaluator.totals("validation"), finetuned, NAMES)
    assert (found.scaling_coefficient, found.correct["test"]) == (grid[best], curves["test"][best])
    fixed = methods.get("lines:beta=0.7")
    assert (fixed.tuned, fixed.merge, fixed.protocol.grid(GRIDS)) == (None, "lines:beta=0.7", (1.0,))
    assert methods.tuned_merge(methods.get("lines_ties:keep=0.1"), 1.2) == "lines_ties:beta=1.2,keep=0.1"
