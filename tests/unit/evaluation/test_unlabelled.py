"""What merges learn from: log-probabilities of choices, their gradients, and no label."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small_clip import SPEC, save_random
from small_t5 import SPEC as T5_SPEC
from small_t5 import save_small, small_examples
from tallmasks.evaluation.unlabelled import UnlabelledTasks
from tallmasks.methods.rows.parts.certainty import entropy
from tallmasks.models.clip.clip_examples import ClipExamples
from tallmasks.models.families import load
from tallmasks.store.tensor_files import Layout
from tallmasks.tasks.texts import FREE
from tallmasks.vectors.task_vectors import TaskVector

KINDS = ["images", "choices", "free"]


def model_and_examples(kind: str, folder: Path) -> tuple[Any, Any, Any]:
    """A small network, examples, and the same with other labels."""
    weights = folder / "weights.safetensors"
    if kind == "images":
        save_random(weights)
        draw = np.random.default_rng(0)
        head = 5 * draw.normal(size=(4, 16)).astype(np.float32)
        images = draw.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
        return load(SPEC, weights, device="cpu"), ClipExamples(images, np.zeros(6, np.int64), head), \
            ClipExamples(images, np.ones(6, np.int64), head)  # fmt: skip
    save_small(weights)
    texts = small_examples(folder, 6, choices=3)
    free = np.full(6, FREE)
    first, other = (texts.right * 0, texts.right * 0 + 1) if kind == "choices" else (free, free)
    return load(T5_SPEC, weights, device="cpu"), replace(texts, right=first), replace(texts, right=other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_is_that_of_the_loss_and_no_label_counts(kind: str, tmp_path: Path) -> None:
    """A merge would learn from the right answers, which it must not know, or something else than its loss says."""
    model, examples, other = model_and_examples(kind, tmp_path)
    layout = Layout(model.trainable, tuple(model.shapes.values()))
    direction = 0.01 * np.random.default_rng(1).normal(size=layout.size).astype(np.float32)
    vector = TaskVector(direction, layout, {})
    before = model.initial().clone()
    network, relabelled = (UnlabelledTasks(model, [one], [vector]) for one in (examples, other))
    zero = network.place(np.zeros_like(direction))
    gradient = network.gradient(zero, 0, 6, entropy)
    assert torch.equal(gradient, relabelled.gradient(zero, 0, 6, entropy))
    assert torch.equal(model.initial(), before), "the pretrained weights are still there"
    logs = model.choice_log_probabilities(model.prepare(examples))
    torch.testing.assert_close(logs.exp().sum(dim=1), torch.ones(6))

    def loss(scale: float) -> float:
        model.use(before + scale * network.place(direction))
        with torch.no_grad():
            return float(entropy(model.choice_log_probabilities(model.prepare(examples)).double()))

    slope = (loss(0.02) - loss(-0.02)) / 0.04
    assert float(gradient @ network.place(direction)) == pytest.approx(slope, rel=0.05, abs=1e-5)
