"""The devices of tensors in training, saving and evaluation: the real code on a fake GPU, without values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import small_clip
import small_t5
from fake_gpu import fake_gpu
from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.evaluation.method_evaluation import InMemory, Tuner, evaluate
from reproduction.models.families import load
from reproduction.models.vision.image_examples import ImageExamples
from reproduction.training.finetuning import FinetuneConfig, finetune
from reproduction.training.unfinished import TrainingRun
from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector
from tiny_worlds.drawn import examples

TEXT = {**small_t5.SPEC, "scoring": {"max_input_tokens": 20, "max_new_tokens": 2, "free_answers": "mean"}}
IMAGES = {**small_clip.SPEC, "preprocess": {"size": 32, "mean": [0.5] * 3, "std": [0.5] * 3}}
MODELS = {
    "images": (IMAGES, "crop"),
    "drawn images": (small_clip.SPEC, {"rotation": 7, "scale": 0.1, "shift": 0.1, "brightness": 0.2, "noise": 0.2}),
    "texts": (TEXT, None),
    "texts, (IA)^3": ({**TEXT, "adapter": "ia3"}, None),
    "written answers": (TEXT, None),
}


def weights_and_data(name: str, folder: Path) -> tuple[Path, Any]:
    """A pretrained file and four examples."""
    path = folder / "weights.safetensors"
    if MODELS[name][0]["family"] == "t5":
        small_t5.save_small(path)
        return path, small_t5.small_examples(folder, 4, free=name == "written answers")
    small_clip.save_random(path)
    return path, ImageExamples(*examples("cars", "train", 4, seed=0), np.ones((8, 16), np.float32))


class Saves:
    """Replaces the file of an unfinished training, and checks what would be written."""

    count = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def restore(self, training: TrainingRun) -> None: ...

    def save_if_due(self, training: TrainingRun) -> None:
        self.count += 1
        assert all(tensor.device.type == "cpu" for tensor in training.snapshot().values())
        for state in training.optimizer.state.values():
            assert all(tensor.device.type == "cuda" for tensor in state.values())


@pytest.mark.parametrize("name", MODELS)
def test_a_training_and_its_saves(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fine-tuning on a GPU would fail because a tensor is on the CPU."""
    spec, changes = MODELS[name]
    path, data = weights_and_data(name, tmp_path)
    state: Any = Saves()
    config = FinetuneConfig(
        iterations=2, batch_size=4, micro_batch_size=2, learning_rate=0.1, weight_decay=0.1, epsilon=1e-8, seed=0,
        clip_norm=1.0, augmentation=changes, validate_every=1,
    )  # fmt: skip
    with fake_gpu(monkeypatch):
        model: Any = load(spec, path)
        allowed = np.arange(model.flat.numel()) % 2 == 0
        result = finetune(model, "cars", data, config, state=state, allowed=allowed, validation=data)
        assert model.device.type == model.flat.device.type == "cuda"
    assert state.count == 1 and len(result.curve) == 2 and tuple(result.checkpoint) == model.trainable


@pytest.mark.parametrize("name", ["images", "texts", "texts, (IA)^3", "written answers"])
def test_an_evaluation(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first evaluation on a GPU would fail because a mask or a task vector is on the CPU."""
    spec, _ = MODELS[name]
    path, data = weights_and_data(name, tmp_path)
    draw = np.random.default_rng(0)
    with fake_gpu(monkeypatch):
        model: Any = load(spec, path)
        evaluator = Evaluator(model, [TaskData(task, {"validation": data, "test": data}) for task in ("a", "b")], 5)
        size = model.flat.numel()
        layout = Layout(model.trainable, tuple(model.shapes.values()))
        vectors = [TaskVector(draw.normal(size=size).astype(np.float32), layout, {}) for _ in "ab"]
        source = InMemory(vectors, np.ones(size, np.float32), (0.2, 0.4), lambda method: (0.2, 0.4))
        for row in ("task_arithmetic", "tall_mask_task_arithmetic", "consensus_task_arithmetic"):
            method = methods.get(row)
            tune = Tuner(evaluator, (0.5,), (1.0, 1.0))
            assert evaluate(method, source.of(method), evaluator, tune, (0.2, 0.4)).tasks == ("a", "b")
