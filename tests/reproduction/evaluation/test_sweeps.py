"""Rows from files and rows computed in memory are the same, and equal the plain statements of the methods."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import reference
from reproduction.evaluation.choice import choose_coefficient, choose_per_task
from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.evaluation.method_evaluation import FromFiles, Tuner, evaluate
from reproduction.evaluation.sweeps import TaskSubset, sample, sampled
from reproduction.models.families import Model, load
from reproduction.models.vision.image_examples import ImageExamples
from small_clip import SPEC, save_random
from tallmasks import methods
from tallmasks.io.tensor_files import write_tensors
from tallmasks.masks.consensus import write_agreement
from tallmasks.masks.mask_grids import write_mask_grid
from tallmasks.methods.inputs import AGREEMENT, MASK, MULTI_TASK_VECTOR, TASK_VECTOR, Input
from tallmasks.vectors.task_vectors import (
    TaskVector,
    compute_task_vector,
    open_task_vector,
    write_multi_task_vector,
)
from tiny_worlds.drawn import examples

NAMES = ("cars", "mnist")
ALPHAS = [0.0, 0.5, 1.0]
LAMBDAS = [0.2, 0.4, 0.6]
GRIDS = {"scaling_coefficient": ALPHAS, "mask_lambda": LAMBDAS}
HEAD = np.random.default_rng(1).normal(size=(10, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_random(folder / "pretrained.safetensors")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(SPEC, folder / "pretrained.safetensors")


@pytest.fixture(scope="module")
def evaluator(model: Model) -> Evaluator:
    data = [
        TaskData(
            name, {split: ImageExamples(*examples(name, split, 60, seed=0), HEAD) for split in ("validation", "test")}
        )
        for name in NAMES
    ]
    return Evaluator(model, data)


@pytest.fixture(scope="module")
def paths(model: Model, folder: Path) -> dict[str, Path]:
    """The files of the task vectors."""
    draw, initial = np.random.default_rng(0), model.named_arrays()
    paths = {name: folder / f"tau-{name}" for name in NAMES}
    for name, path in paths.items():
        tuned = {key: array + draw.normal(0, 0.1, array.shape).astype(np.float32) for key, array in initial.items()}
        write_tensors(folder / name, tuned, {})
        compute_task_vector(folder / "pretrained.safetensors", folder / name, initial, path, {}, [0.1, 0.2])
    return paths


@pytest.fixture(scope="module")
def vectors(paths: dict[str, Path]) -> dict[str, TaskVector]:
    return {name: open_task_vector(path) for name, path in paths.items()}


def rounded(tau: NDArray, theta: NDArray, name: str) -> NDArray:
    """A matrix at random multiples of a tenth of each row of theta_0, or of tau as a whole, whichever is larger; a
    vector at the nearest multiples of a tenth of itself."""
    length = np.sqrt(np.mean(tau.astype(np.float64) ** 2))
    if sum(axis > 1 for axis in tau.shape) < 2:
        return np.rint(10 * tau / length) * length / 10
    rows = np.sqrt(np.mean(theta.astype(np.float64) ** 2, axis=tuple(range(1, theta.ndim)), keepdims=True))
    step = np.maximum(rows / 10, length)
    draw = np.random.Philox(key=xxhash.xxh3_128_intdigest(name.encode() + tau.tobytes()))
    numbers = draw.random_raw((tau.size + 1) // 2).view(np.uint32)[: tau.size].reshape(tau.shape) / 2**32
    multiples = np.abs(tau) / step
    return np.sign(tau) * step * (np.floor(multiples) + (numbers < multiples % 1))


@pytest.fixture(scope="module")
def plain(
    vectors: dict[str, TaskVector], evaluator: Evaluator, model: Model
) -> tuple[dict[str, list[np.ndarray]], dict[str, list[float]]]:
    """Every method's update for each task, from the plain statements, at the lambdas chosen on validation data; and
    these lambdas by merge."""
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
    theta = layout.split(model.initial().numpy())
    stacked = {name: np.stack([layout.split(flat)[name] for flat in flats]) for name in layout.names}
    found["iso_c"] = [np.concatenate([reference.iso_c(stacked[name]).ravel() for name in layout.names])] * 2
    found["stochastic_rounding"] = [
        np.concatenate([rounded(part, theta[name], name).ravel() for name, part in layout.split(flat).items()])
        for flat in flats
    ]
    found["emr"] = reference.emr(np.stack(flats), list(pairwise([*layout.offsets, layout.size])))
    lambdas = {}
    for merge, suffix in (("sum", "task_arithmetic"), ("ties_sum", "ties")):
        masks = [[reference.mask(flat, merges[merge], value) for value in LAMBDAS] for flat in flats]
        curve = evaluator.per_task(
            "validation", lambda t, m=masks, w=merges[merge]: iter([w * mask for mask in m[t]]), 3
        )
        chosen = [m[place] for m, place in zip(masks, choose_per_task(curve), strict=True)]
        lambdas[merge] = [LAMBDAS[place] for place in choose_per_task(curve)]
        found[f"tall_mask_{suffix}"] = [merges[merge] * mask for mask in chosen]
        agreed = reference.agreement(chosen)
        for k, ending in ((2, ""), (1, "_k1")):
            found[f"consensus_{suffix}{ending}"] = [merges[merge] * (agreed >= k)] * 2
    return found, lambdas


def files_for(
    method: methods.Method, paths: dict[str, Path], lambdas: dict[str, list[float]]
) -> dict[Input, list[Path]]:
    """The artifacts that the workflow gives to the evaluation of a method."""
    vectors = list(paths.values())
    merged, masks, agreement = (vectors[0].with_name(f"{kind}-{method.name}") for kind in ("merged", "masks", "agreed"))
    if MULTI_TASK_VECTOR in method.all_inputs.values():
        write_multi_task_vector(methods.get_merge(str(method.merge)), str(method.merge), vectors, merged, {})
        write_mask_grid(masks, paths, merged, LAMBDAS, {})
    if AGREEMENT in method.all_inputs.values():
        write_agreement(agreement, masks, dict(zip(NAMES, lambdas[str(method.merge)], strict=True)), {})
    made = {TASK_VECTOR: vectors, MULTI_TASK_VECTOR: [merged], MASK: [masks], AGREEMENT: [agreement]}
    return {needed: files for needed, files in made.items() if needed in method.all_inputs.values()}


@pytest.mark.parametrize("name", methods.names("paper"))
def test_every_method_equals_the_plain_statement(
    name: str, evaluator: Evaluator, vectors: dict[str, TaskVector], paths: dict[str, Path], model: Model, plain: Any
) -> None:
    """The tables, made from files, or figure 5, made in memory, would show other models than the paper's."""
    tune, method, (statements, lambdas) = partial(Tuner, evaluator, finetuned=[0.9, 0.8]), methods.get(name), plain
    found = TaskSubset(vectors, model.initial().numpy(), tune, evaluator, GRIDS).evaluate(method)
    source = FromFiles(method, NAMES, files_for(method, paths, lambdas), model.initial())
    tuner = tune(method.usage.grid(GRIDS)) if isinstance(method.usage, methods.Scaled) else None
    assert evaluate(method, source, evaluator, tuner, LAMBDAS) == found
    if name not in statements:
        assert name not in reference.PAPER_ROWS, "every shipped method has a plain statement"
        pytest.skip("a user's own method, which has no plain statement")
    updates = [update.astype(np.float32) for update in statements[name]]
    assert (found.method, found.tasks) == (name, NAMES)
    if isinstance(method.usage, methods.Scaled):
        grid = method.usage.grid(GRIDS)
        curve = evaluator.scaled("validation", updates[0], grid)
        place = choose_coefficient(curve, evaluator.totals("validation"), [0.9, 0.8], NAMES)
        assert found.scaling_coefficient == grid[place] and found.curve == tuple(map(tuple, curve))
        expected = {split: evaluator.scaled(split, updates[0], [grid[place]]) for split in ("validation", "test")}
    else:
        expected = {
            split: evaluator.per_task(split, lambda task: iter([updates[task]]), 1) for split in ("validation", "test")
        }
    assert found.correct == {split: [row[0] for row in rows] for split, rows in expected.items()}
    if isinstance(method.usage, methods.Masked):  # chosen on validation data
        assert found.mask_lambda == tuple(LAMBDAS[place] for place in choose_per_task(found.curve))
    assert found.total == {"validation": [60, 60], "test": [60, 60]}


@given(total=st.integers(1, 50), count=st.integers(1, 60))
def test_a_sample_is_fixed_and_without_replacement(total: int, count: int) -> None:
    """Two methods would be compared on different images, or some images would count twice."""
    whole = ImageExamples(np.arange(total, dtype=np.uint8).reshape(-1, 1, 1, 1), np.arange(total), HEAD)
    one, other = sample(whole, count), sample(whole, count)
    assert one.labels.tolist() == other.labels.tolist() == sorted(set(one.labels.tolist()))
    assert len(one.labels) == min(total, count)
    pixels = np.empty((len(one), 1, 1, 1), np.uint8)
    one.read_into(pixels)
    assert pixels.reshape(-1).tolist() == one.labels.tolist()


def test_a_sample_covers_the_whole_split() -> None:
    """Of data sorted by class, only some classes would be sampled."""
    whole = ImageExamples(np.zeros((1000, 1, 1, 1), np.uint8), np.arange(1000), HEAD)
    assert sample(whole, 100).labels.mean() == pytest.approx(500, abs=100)
    assert sample(whole, None) is whole


def test_the_tasks_of_a_sweep_share_its_examples() -> None:
    """Figure 5 would cost more for more tasks than params.yaml allows, or choose lambdas on a share of the examples."""
    whole = ImageExamples(np.zeros((50, 1, 1, 1), np.uint8), np.arange(50), HEAD)
    tasks = [TaskData(name, {"validation": whole, "test": whole}) for name in "abc"]
    for by_task, expected in ({}, (10, 1)), ({"validation": 30}, (30, 1)), ({"validation": None}, (50, 1)):
        for task in sampled(tasks, {"validation": 30, "test": 1}, by_task):
            assert tuple(map(len, task.splits.values())) == expected


def test_a_tuned_option_is_chosen_on_validation_data(
    evaluator: Evaluator, vectors: dict[str, TaskVector], paths: dict[str, Path], model: Model
) -> None:
    """LiNeS would have one slope for all models, or a slope chosen on test data."""
    method, pretrained = methods.get("lines"), model.initial().cpu().numpy()
    assert (method.tuned, method.usage.grid(GRIDS)) == ("beta", tuple(np.arange(1, 11) / 10))
    grid, finetuned = [0.1, 1.0], [0.5, 0.5]
    subset = TaskSubset(vectors, pretrained, lambda _: Tuner(evaluator, grid, finetuned), evaluator, GRIDS)
    found = subset.evaluate(method)
    source = FromFiles(method, NAMES, {TASK_VECTOR: list(paths.values())}, model.initial())
    assert evaluate(method, source, evaluator, Tuner(evaluator, grid, finetuned), LAMBDAS) == found
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
    assert (fixed.tuned, fixed.merge, fixed.usage.grid(GRIDS)) == (None, "lines:beta=0.7", (1.0,))
    assert methods.tuned_merge(methods.get("lines_ties:keep=0.1"), 1.2) == "lines_ties:beta=1.2,keep=0.1"
