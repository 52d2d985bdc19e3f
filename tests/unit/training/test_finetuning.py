"""Fine-tuning and pretraining at a size that takes seconds."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from resumption import ends_as_undisturbed
from tallmasks.models.clip.augmentation import Augmentation, augment
from tallmasks.models.clip.clip_examples import ClipExamples
from tallmasks.models.families import Model, load
from tallmasks.store.artifacts import as_metadata, facts_of
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import open_tensors, write_tensors
from tallmasks.tasks.drawn import TASKS, examples
from tallmasks.training.batches import ShuffledBatches
from tallmasks.training.finetuning import (
    FinetuneConfig,
    FinetuneResult,
    cosine_schedule,
    finetune,
)
from tallmasks.training.tiny_pretraining import (
    PretrainConfig,
    all_captions,
    contrastive_loss,
    draw_pairs,
    plateau_schedule,
    pretrain_tiny,
)
from tallmasks.training.unfinished import TrainingState

STILL = Augmentation(rotation=0, scale=0, shift=0, brightness=0, noise=0)
MOVING: dict[str, float] = {"rotation": 7.0, "scale": 0.1, "shift": 0.08, "brightness": 0.2, "noise": 0.2}
SPEC: dict[str, Any] = {
    "family": "clip",
    "architecture": {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16},
        "text_cfg": {"context_length": 16, "width": 16, "heads": 2, "layers": 1},
    },
    "pretraining": {
        "images": 64,
        "field_share": 0.4,
        "steps": 3,
        "batch_size": 16,
        "captions": 20,
        "learning_rate": 1e-3,
        "warmup_steps": 2,
        "decay_share": 0.3,
        "weight_decay": 0.05,
        "betas": [0.9, 0.98],
        "clip_norm": 1.0,
        "largest_logit_scale": 14.0,
        "text_to_image_weight": 0.5,
        "seed": 0,
        "augmentation": MOVING,
    },
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A very small model from the project's own pretraining."""
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    pretrain_tiny(SPEC, path, processes=1)
    return path


def config(**changes: Any) -> FinetuneConfig:
    settings: dict[str, Any] = {
        "iterations": 5,
        "batch_size": 16,
        "learning_rate": 1e-3,
        "warmup_iterations": 2,
        "weight_decay": 0.0,
        "epsilon": 1e-8,
        "clip_norm": 1.0,
        "seed": 0,
        "augmentation": Augmentation(**MOVING),
    }
    return FinetuneConfig(**{**settings, **changes})


def tune(model: Model, task: str = "pcam", **changes: Any) -> NDArray[np.float32]:
    """Fine-tune from the pretrained weights; the whole flat buffer afterwards."""
    model.flat.copy_(model.initial())
    data = ClipExamples(*examples(task, "train", 40, seed=0), model.head(TASKS[task]).numpy())
    finetune(model, task, data, config(**changes))
    return model.flat.numpy().copy()


def test_pretraining_is_repeatable(weights: Path, tmp_path: Path) -> None:
    """Without it nobody could make the shipped file again."""
    pretrain_tiny(SPEC, tmp_path / "again.safetensors", processes=1)
    first, again = open_tensors(weights), open_tensors(tmp_path / "again.safetensors")
    assert again.metadata == first.metadata  # safetensors writes it in any order
    assert again.names == first.names
    assert all(again.read(name).tobytes() == first.read(name).tobytes() for name in first.names)


def test_pretraining_never_pairs_the_field_style_with_a_prompt() -> None:
    """Without it zero-shot accuracy would be that of a model trained on the tasks.

    Two kinds of captions read the same backwards: the digits of mnist, whose field style pretraining never sees, and
    emnist's single letters, whose zero-shot accuracy is higher for it.
    """
    recipe = PretrainConfig.of({**SPEC["pretraining"], "field_share": 1.0, "images": 60})
    labels = draw_pairs(recipe, rank=0, processes=1)[1]
    captions = all_captions()
    prompts = {
        prompt for task in TASKS.values() for label in range(len(task.classes)) for prompt in task.prompts(label)
    }
    spoken = [captions[label] for label in labels.tolist()]
    assert any(not prompts & set(row) for row in spoken)
    same_backwards = {
        prompt for task in ("mnist", "emnist") for label in range(10) for prompt in TASKS[task].prompts(label)
    }
    assert all(not (prompts - same_backwards) & set(row) for row in spoken)


def test_same_seed_same_checkpoint(weights: Path) -> None:
    """Without it a table could not be made again from its recipe."""
    model = load(SPEC, weights)
    first = tune(model)
    torch.manual_seed(99)  # the global generator must not matter
    np.testing.assert_array_equal(first, tune(model))
    assert not np.array_equal(first, tune(model, seed=1))


def test_task_name_enters_the_seed(weights: Path) -> None:
    """Without it all tasks would see their images in one order, and their task vectors would share its noise."""
    model = load(SPEC, weights)
    data = ClipExamples(*examples("pcam", "train", 40, seed=0), model.head(TASKS["pcam"]).numpy())
    results = []
    for name in ("pcam", "another"):
        model.flat.copy_(model.initial())
        results.append(finetune(model, name, data, config()).curve)
    assert results[0] != results[1]


def test_checkpoint_holds_the_trainable_tensors(weights: Path) -> None:
    """Without it a task vector would lack tensors or hold frozen ones."""
    model, seen = load(SPEC, weights), []
    data = ClipExamples(*examples("pcam", "train", 40, seed=0), model.head(TASKS["pcam"]).numpy())
    result = finetune(model, "pcam", data, config(iterations=12), seen.append)
    assert tuple(result.checkpoint) == model.trainable
    flat = np.concatenate([tensor.ravel() for tensor in result.checkpoint.values()])
    np.testing.assert_array_equal(flat, model.flat.numpy())
    assert not np.array_equal(flat, model.initial().numpy())
    assert [progress.step for progress in seen] == [10, 12] and seen[-1].seconds_left == 0
    assert [row[0] for row in result.curve] == list(range(1, 13))


def test_learns_an_easy_task(weights: Path) -> None:
    """Without it fine-tuning could run, report and change nothing for the better."""
    model = load(SPEC, weights)
    labels = np.arange(64) % 2
    images = np.broadcast_to((labels * 255).astype(np.uint8)[:, None, None, None], (64, 32, 32, 3)).copy()
    result = finetune(
        model,
        "pcam",
        ClipExamples(images, labels, model.head(TASKS["pcam"]).numpy()),
        config(iterations=25, learning_rate=3e-3, augmentation=STILL),
    )
    assert result.curve[-1][2] < 0.3 * result.curve[0][2]


def test_a_loss_that_explodes_is_reported(weights: Path) -> None:
    """Without it a checkpoint full of NaN would be merged into every model."""
    model = load(SPEC, weights)
    data = ClipExamples(*examples("pcam", "train", 40, seed=0), np.full((2, 16), np.inf, dtype=np.float32))
    with pytest.raises(TallmasksError, match=r"'pcam'.*step 1"):
        finetune(model, "pcam", data, config())


@pytest.mark.parametrize("stop", [10, 20])
def test_a_killed_training_ends_as_an_undisturbed_one(weights: Path, tmp_path: Path, stop: int) -> None:
    """Without it a run that was interrupted would give other numbers than its recipe's, or begin anew."""
    head = load(SPEC, weights).head(TASKS["pcam"]).numpy()
    data = ClipExamples(*examples("pcam", "train", 40, seed=0), head)
    settings = config(iterations=25, weight_decay=0.1)

    def run(state: TrainingState | None, report: Callable[[Any], None]) -> FinetuneResult:
        return finetune(load(SPEC, weights), "pcam", data, settings, report, state)

    ends_as_undisturbed(run, tmp_path, stop)


HEAD = "1" * 32 + "/12345678"
MAKING = as_metadata(facts_of({"kind": "checkpoint", "params": {"task": "mnist"}}, {"head": [HEAD]}, 1))


@pytest.fixture
def unfinished(tmp_path: Path) -> TrainingState:
    """A state as one training left it."""
    state = TrainingState(tmp_path / "training.safetensors", MAKING)
    assert state.unfit() is None, "there is none"
    write_tensors(state.path, {"weights": np.ones(100, np.float32)}, MAKING)
    assert state.unfit() is None
    return state


def zero(path: Path) -> None:
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[:-400] + bytes(400))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (zero, "has other values than were written there"),
        (lambda path: (path.unlink(), path.write_bytes(b"half")), "is not a whole safetensors file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is not a file"),
        (lambda path: (path.unlink(), write_tensors(path, {}, {})), "says nothing of how it was made"),
        (lambda path: (path.unlink(), write_tensors(path, {}, other(task="svhn"))), "is of another training"),
        (
            lambda path: (path.unlink(), write_tensors(path, {}, other(head="2" * 32 + "/12345678"))),
            "is of another training",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_not_gone_on_from(
    unfinished: TrainingState, damage: Callable[[Path], object], said: str
) -> None:
    """Zeroed weights, or another task's, became the checkpoint of a task, under the right name."""
    damage(unfinished.path)
    assert said in str(unfinished.unfit())
    with pytest.raises(TallmasksError, match=said):
        unfinished.restore(None)  # type: ignore[arg-type]


def other(task: str = "mnist", head: str = HEAD) -> dict[str, str]:
    """What a training on another task, or with another head, says of its making."""
    return as_metadata(facts_of({"kind": "checkpoint", "params": {"task": task}}, {"head": [head]}, 1))


def test_gradients_are_summed_up_over_the_batch(weights: Path) -> None:
    """Without it a GPU with little memory would train another model."""
    model = load(SPEC, weights)
    calm = {"epsilon": 1e-3}  # else AdamW makes much of a rounding where a gradient is nearly 0
    whole, parts = tune(model, **calm), tune(model, micro_batch_size=5, **calm)
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-6)
    assert np.abs(whole - model.initial().numpy()).max() > 1e-4


def test_only_the_allowed_weights_move(weights: Path) -> None:
    """Without it the controlled experiment's task vectors would overlap, by weight decay at the least."""
    model = load(SPEC, weights)
    data = ClipExamples(*examples("pcam", "train", 40, seed=0), model.head(TASKS["pcam"]).numpy())
    allowed = np.random.default_rng(0).random(model.flat.numel()) < 0.5
    finetune(model, "pcam", data, config(weight_decay=0.1), allowed=allowed)
    moved = model.flat.numpy() != model.initial().numpy()
    assert not moved[~allowed].any() and moved[allowed].mean() > 0.9


def test_crops_are_open_clips(weights: Path) -> None:
    """Without it real images would be trained on otherwise than in the paper, or in another order on every run."""
    model = load({**SPEC, "preprocess": {"size": 32, "mean": [0.5] * 3, "std": [0.5] * 3}}, weights)
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (40, 40, 40, 3), np.uint8)
    labels, sizes = np.arange(40) % 2, np.tile(np.array([[30, 50]], np.int32), (40, 1))
    head = model.head(TASKS["pcam"]).numpy()
    results = []
    for kwargs in ({}, {}, {"sizes": sizes}):
        model.flat.copy_(model.initial())
        data = ClipExamples(images, labels, head, **kwargs)
        results.append(finetune(model, "pcam", data, config(augmentation="crop")).curve)
    assert results[0] == results[1] != results[2]
    some = ClipExamples(images, labels, head)[np.arange(8)]
    found = model.prepare(some, "crop", torch.Generator().manual_seed(0)).pixels
    assert found.shape == (8, 3, 32, 32) and found.dtype == torch.float32 and -1 <= found.min() < found.max() <= 1


def test_the_recipe_is_read_from_params() -> None:
    """Without it a key of params.yaml could be dropped on the way."""
    knobs: dict[str, Any] = {
        "iterations": 5, "batch_size": 16, "learning_rate": 1e-3, "warmup_iterations": 2, "weight_decay": 0.0,
        "epsilon": 1e-8, "clip_norm": 1.0, "augmentation": MOVING,
    }  # fmt: skip
    assert FinetuneConfig.of(knobs, 0) == config(augmentation=MOVING)
    mixed = {**knobs, "augmentation": "crop", "precision": "bfloat16", "micro_batch_size": 4}
    found = FinetuneConfig.of(mixed, 3)
    assert (found.augmentation, found.precision, found.micro_batch_size, found.seed) == ("crop", "bfloat16", 4, 3)


def test_schedules() -> None:
    """Without it warm-up or decay could be off by the length of a run."""
    assert cosine_schedule(1, 100, 10) == pytest.approx(0.1)
    assert cosine_schedule(10, 100, 10) == 1
    assert 0 < cosine_schedule(100, 100, 10) < 0.001
    recipe = PretrainConfig.of({**SPEC["pretraining"], "steps": 100, "warmup_steps": 10})
    shares = [plateau_schedule(step, recipe) for step in (1, 10, 60, 100)]
    assert shares == pytest.approx([0.1, 1, 1, 1 / 30])


def test_batches_visit_every_example_equally() -> None:
    """Without it some training images would never be used."""
    batches = ShuffledBatches(10, 4, torch.Generator().manual_seed(0))
    seen = torch.cat([next(batches) for _ in range(10)])
    assert torch.bincount(seen).tolist() == [4] * 10


def test_no_augmentation_changes_nothing() -> None:
    """Without it images would be blurred or moved even where params.yaml says 0."""
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    torch.testing.assert_close(augment(images, STILL, torch.Generator().manual_seed(0)), images, atol=1e-4, rtol=0)


def test_contrastive_loss_is_the_plain_statement() -> None:
    """Without it pretraining could pull captions towards the wrong pictures."""
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 2, 0, 2])
    to_text = -sum(logits[i].log_softmax(0)[target[i]] for i in range(4)) / 4
    to_image = 0.0
    for caption, own in ((0, (0, 2)), (2, (1, 3))):
        said = logits[:, caption].log_softmax(0)
        to_image += sum(0.5 * (math.log(0.5) - float(said[i])) for i in own) / 2
    assert float(contrastive_loss(logits, target, 0.5)) == pytest.approx(float(to_text) + 0.5 * to_image, rel=1e-5)
