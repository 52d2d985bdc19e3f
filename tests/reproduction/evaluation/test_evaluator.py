"""Counts are the same as for one model after the other, however many weight sets share a pass."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from reproduction.evaluation.evaluator import Evaluator, TaskData, unpack_mask
from reproduction.models.families import Model, load
from reproduction.models.vision.image_examples import ImageExamples
from small_clip import SPEC, save_random
from tiny_worlds.drawn import TASKS, examples

COEFFICIENTS = [0.0, 0.5, 1.0, 2.0, 4.0]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_random(path)
    return load(SPEC, path)


@pytest.fixture(scope="module")
def tasks(model: Model, tmp_path_factory: pytest.TempPathFactory) -> list[TaskData]:
    """Two tasks of different sizes; the images of one are memory-mapped, read-only."""
    cars, mnist = examples("cars", "test", 50, seed=0), examples("mnist", "test", 33, seed=0)
    path = tmp_path_factory.mktemp("images") / "mnist.npy"
    np.save(path, mnist[0])
    draw = np.random.default_rng(0)
    shapes = {name: (len(TASKS[name].classes), 16) for name in ("cars", "mnist")}
    heads = {name: draw.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    splits = {
        "cars": ImageExamples(*cars, heads["cars"]),
        "mnist": ImageExamples(np.load(path, mmap_mode="r"), mnist[1], heads["mnist"]),
    }
    return [TaskData(name, {"test": data}) for name, data in splits.items()]


def direction(model: Model, seed: int) -> NDArray[np.float32]:
    return 0.05 * np.random.default_rng(seed).standard_normal(model.flat.numel(), dtype=np.float32)


def plainly(model: Model, task: TaskData, weights: torch.Tensor) -> int:
    """The correct answers of one weight set, with all images in one batch."""
    before = model.flat.clone()
    model.flat.copy_(weights)
    data = task.splits["test"]
    with torch.no_grad():
        scores = model.logits(model.pixels(np.array(data.images)), torch.from_numpy(data.head))
    model.flat.copy_(before)
    return int((scores.argmax(dim=1).numpy() == data.labels).sum())


@pytest.mark.parametrize("resident", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [7, 128])
def test_scaled_counts(
    model: Model, tasks: list[TaskData], resident: int, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coefficient would get the accuracy of another one, or the last images of a split would not count."""
    update, start = direction(model, 0), model.initial()
    monkeypatch.setattr("reproduction.evaluation.evaluator.CPU_BYTES", resident * start.nbytes)
    evaluator = Evaluator(model, tasks, batch_size)
    found = evaluator.scaled("test", update, COEFFICIENTS)
    expected = [[plainly(model, task, start + c * torch.from_numpy(update)) for c in COEFFICIENTS] for task in tasks]
    assert found == expected
    assert len({tuple(row) for row in zip(*found, strict=True)}) > 1  # the weights matter
    assert torch.equal(model.flat, start)  # the model is left as it was
    assert evaluator.totals("test") == [50, 33]


@pytest.mark.parametrize("resident", [1, 2, 3])
def test_own_counts(model: Model, tasks: list[TaskData], resident: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task would be scored with the masks of another task or another lambda."""
    updates = [[direction(model, 10 * index + k) for k in range(3)] for index in range(2)]
    start = model.initial()
    monkeypatch.setattr("reproduction.evaluation.evaluator.CPU_BYTES", resident * start.nbytes)
    found = Evaluator(model, tasks).per_task("test", lambda index: iter(updates[index]), 3)
    assert found == [
        [plainly(model, task, start + torch.from_numpy(update)) for update in updates[index]]
        for index, task in enumerate(tasks)
    ]


@pytest.mark.parametrize("size", [1, 8, 8191])
def test_masks_are_unpacked_on_the_device(size: int) -> None:
    """On a GPU every task would be scored with a wrong mask."""
    mask = np.random.default_rng(0).random(size) < 0.3
    packed = np.packbits(mask, bitorder="little")
    np.testing.assert_array_equal(unpack_mask(packed, size, torch.device("cpu")), mask)
    meta = unpack_mask(packed, size, torch.device("meta"))  # runs the GPU's code without a GPU
    assert isinstance(meta, torch.Tensor) and meta.shape == (size,) and meta.dtype == torch.bool
