"""Fine-tuning a small CLIP, unfinished trainings, batches, and the controlled experiment's partition."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fake_gpu import fake_gpu
from reproduction.artifacts.labels import as_metadata
from reproduction.models.families import load
from reproduction.models.flat_weights import FlatWeights
from reproduction.models.vision.augmentation import augment
from reproduction.models.vision.image_examples import ImageExamples
from reproduction.training.controlled import Controlled, owners, part_mask
from reproduction.training.finetuning import FinetuneConfig, Progress, adamw, finetune
from reproduction.training.shuffled_batches import ShuffledBatches
from reproduction.training.unfinished import TrainingRun, TrainingState
from small_clip import SPEC, save_random
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors
from tiny_worlds.drawn import TASKS, examples

STILL = dict.fromkeys(("rotation", "scale", "shift", "brightness", "noise"), 0.0)
MOVING: dict[str, float] = {"rotation": 7.0, "scale": 0.1, "shift": 0.08, "brightness": 0.2, "noise": 0.2}
KNOBS: dict[str, Any] = {
    "iterations": 5, "batch_size": 16, "learning_rate": 1e-3, "warmup_iterations": 2, "weight_decay": 0.0,
    "epsilon": 1e-8, "clip_norm": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A very small model."""
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_random(path)
    return path


@pytest.fixture(scope="module")
def data(weights: Path) -> ImageExamples:
    """Some images of a task, and its head."""
    return ImageExamples(*examples("cars", "train", 40, seed=0), load(SPEC, weights).head(TASKS["cars"])["head"])


def config(**changes: Any) -> FinetuneConfig:
    return FinetuneConfig(**{**KNOBS, "seed": 0, "augmentation": MOVING, **changes})


def test_a_checkpoint_has_the_trained_tensors(weights: Path, data: ImageExamples) -> None:
    """A checkpoint would lack tensors, or have the pretrained ones."""
    seen: list[Progress] = []
    model = load(SPEC, weights)
    result = finetune(model, "cars", data, config(iterations=12), seen.append)
    assert tuple(result.checkpoint) == model.trainable
    flat = np.concatenate([tensor.ravel() for tensor in result.checkpoint.values()])
    np.testing.assert_array_equal(flat, model.flat.numpy())
    assert not np.array_equal(flat, model.initial().numpy())
    assert [progress.step for progress in seen] == [10, 12] and seen[-1].seconds_left == 0
    assert [row[0] for row in result.curve] == list(range(1, 13))


def test_a_loss_that_explodes_is_reported(weights: Path, data: ImageExamples) -> None:
    """A checkpoint full of NaN would be merged into every model."""
    odd = ImageExamples(data.images, data.labels, np.full_like(data.head, np.inf))
    with pytest.raises(TallmasksError, match=r"'cars'.*step 1"):
        finetune(load(SPEC, weights), "cars", odd, config())


MAKING, OF_ANOTHER = (as_metadata({"kind": "finetune", "params": {"task": task}}) for task in ("mnist", "svhn"))


@pytest.fixture
def unfinished(tmp_path: Path) -> TrainingState:
    """The state of an interrupted training."""
    state = TrainingState(tmp_path / "training.safetensors", MAKING)
    assert state.unfit() is None, "no file yet"
    write_tensors(state.path, {"weights": np.ones(100, np.float32)}, MAKING)
    assert state.unfit() is None
    return state


def zero(path: Path) -> None:
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[:-400] + bytes(400))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (zero, "training.safetensors"),
        (lambda path: (path.unlink(), write_tensors(path, {}, OF_ANOTHER)), "another training"),
    ],
)
def test_a_state_that_does_not_fit_is_not_continued(
    unfinished: TrainingState, damage: Callable[[Path], object], problem: str
) -> None:
    """Zeroed weights, or another task's weights, would become the checkpoint of a task."""
    damage(unfinished.path)
    assert problem in str(unfinished.unfit())
    with pytest.raises(TallmasksError, match=problem):
        unfinished.restore(None)  # type: ignore[arg-type]


def test_only_the_allowed_weights_move(weights: Path, data: ImageExamples) -> None:
    """The controlled experiment's task vectors would overlap, at least through weight decay."""
    model = load(SPEC, weights)
    allowed = part_mask(model.flat.numel(), Controlled(0, ("cars", "mnist")).partition("cars"))
    finetune(model, "cars", data, config(weight_decay=0.1), allowed=allowed)
    moved = model.flat.numpy() != model.initial().numpy()
    assert not moved[~allowed].any() and moved[allowed].mean() > 0.99


def test_training_crops_images_like_open_clip(weights: Path, data: ImageExamples) -> None:
    """Training on real images would differ from the paper, or between two runs."""
    spec = {**SPEC, "preprocess": {"size": 32, "mean": [0.5] * 3, "std": [0.5] * 3}}
    images = np.random.default_rng(0).integers(0, 256, (20, 40, 40, 3), np.uint8)
    labels, sizes = np.arange(20) % 2, np.tile(np.array([[30, 50]], np.int32), (20, 1))
    curves = []
    for kwargs in ({}, {}, {"sizes": sizes}):
        model, cropped = load(spec, weights), ImageExamples(images, labels, data.head, **kwargs)
        curves.append(finetune(model, "cars", cropped, config(iterations=2, augmentation="crop")).curve)
    assert curves[0] == curves[1] != curves[2]
    pixels = model.prepare(cropped[np.arange(8)], "crop", torch.Generator().manual_seed(0)).pixels
    assert pixels.shape == (8, 3, 32, 32) and pixels.dtype == torch.float32 and -1 <= pixels.min() < pixels.max() <= 1


def test_batches_visit_every_example_equally() -> None:
    """Some training images would never be used."""
    batches = ShuffledBatches(10, 4, torch.Generator().manual_seed(0))
    seen = torch.cat([next(batches) for _ in range(10)])
    assert torch.bincount(seen).tolist() == [4] * 10


def test_no_augmentation_changes_nothing() -> None:
    """Images would be blurred or moved even if params.yaml sets 0."""
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    torch.testing.assert_close(augment(images, torch.Generator().manual_seed(0), **STILL), images, atol=1e-4, rtol=0)


@given(size=st.integers(8, 3000), parts=st.integers(1, 8), seed=st.integers(0, 2**32 - 1))
def test_parts_are_disjoint_equally_large_and_complete(size: int, parts: int, seed: int) -> None:
    """Task vectors would interfere, or one task would train more weights than another."""
    masks = [part_mask(size, {"seed": seed, "parts": parts, "part": part}) for part in range(parts)]
    assert (np.sum(masks, axis=0) == 1).all()
    sizes = [int(mask.sum()) for mask in masks]
    assert max(sizes) - min(sizes) <= 1


def test_the_partition_never_changes() -> None:
    """A checkpoint's recipe would mean other weights on another machine or with another version of NumPy."""
    assert owners(12, 3, 0).tolist() == [0, 2, 1, 1, 2, 2, 1, 1, 0, 0, 0, 2]
    assert (owners(999, 4, 0) != owners(999, 4, 1)).any()


def test_parts_are_random() -> None:
    """Each task would train whole layers, which is another experiment."""
    found = owners(100_000, 8, 0)
    for half in np.split(found, 2):
        assert np.abs(np.bincount(half) / 50_000 - 1 / 8).max() < 0.01


def test_each_task_has_its_part() -> None:
    """A task would train another task's weights."""
    who = Controlled(0, ("cars", "mnist"))
    assert who.partition("mnist") == {"seed": 0, "parts": 2, "part": 1}
    assert str(who) == "0-controlled2"


MAKING = as_metadata({})


def test_an_error_of_a_save_ends_the_training(tmp_path: Path) -> None:
    """On a full disk a training would run for days without a state to continue from."""
    (tmp_path / "file").touch()
    training: Any = SimpleNamespace(snapshot=lambda: {"weights": torch.ones(3)})
    with pytest.raises(OSError), TrainingState(tmp_path / "file" / "state", MAKING, 0, clock=lambda: 0.0) as state:
        state.save_if_due(training)


def training_on(device: str) -> TrainingRun:
    """A training of three tensors after one step."""
    shapes = {"a": (4, 3), "b": (5,), "c": (2, 2)}
    model: Any = FlatWeights(
        {name: torch.nn.Parameter(torch.ones(shape, device=device)) for name, shape in shapes.items()}
    )
    optimizer = adamw(model, learning_rate=0.1, weight_decay=0.0, epsilon=1e-8)
    generator = torch.Generator()
    training = TrainingRun(model, optimizer, generator, ShuffledBatches(10, 4, generator), 4)
    training.curve.append((1, 0.1, 1.0))
    training.drawn = training.draws()
    step(training)
    return training


def step(training: TrainingRun) -> None:
    for parameter in training.model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    training.optimizer.step()


def test_a_training_continues_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A continued training would fail at its first step, because a tensor of the optimizer is on the CPU."""
    real = training_on("cpu").snapshot()
    with fake_gpu(monkeypatch):
        training = training_on("cuda")
        training.take(training_on("cuda").snapshot() | {name: real[name] for name in ("curve", "generator", "dropout")})
        states = [training.optimizer.state[parameter] for parameter in training.model.parameters()]
        assert all(tensor.device.type == "cuda" for state in states for tensor in state.values())
        step(training)


def test_a_snapshot_does_not_change_with_the_next_steps() -> None:
    """A save, which is written while training continues, would mix two steps."""
    training = training_on("cpu")
    saved = training.snapshot()
    before = {name: tensor.clone() for name, tensor in saved.items()}
    step(training)
    after = training.snapshot()
    assert all(torch.equal(saved[name], tensor) for name, tensor in before.items())
    assert not any(torch.equal(after[name], saved[name]) for name in ("weights", "exp_avg", "exp_avg_sq"))


def test_a_training_with_a_tensor_without_gradients_is_saved() -> None:
    """A training of a model with a tensor that only pretraining uses, such as DINOv2's mask token, would end."""
    training, again = training_on("cpu"), training_on("cpu")
    *_, unused = training.model.parameters()
    del training.optimizer.state[unused]
    saved = training.snapshot()
    again.take(saved)
    assert all(torch.equal(saved[name], tensor) for name, tensor in again.snapshot().items())
    assert saved["exp_avg"].tolist().count(0) == unused.numel()
