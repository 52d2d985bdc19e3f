"""A T5 and its (IA)^3 through the project's chain: fine-tuned, subtracted from where they began, merged, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_t5 import ARCHITECTURE, SPEC, WORDS, save_small
from tallmasks import methods
from tallmasks.evaluation.counting import Evaluator, TaskData
from tallmasks.masks.mask_bundles import open_mask_bundle, write_mask_bundle
from tallmasks.masks.mask_statistics import statistics
from tallmasks.models.families import load
from tallmasks.models.t5 import FAMILY
from tallmasks.store.tensor_files import open_tensors, write_tensors
from tallmasks.tasks.texts import Text, Texts, open_texts, write_texts
from tallmasks.training.finetuning import FinetuneConfig, finetune
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector, write_multi_task_vector
from tallmasks.vectors.task_vectors import compute_task_vector, open_task_vector

CONFIG = FinetuneConfig(
    iterations=40,
    batch_size=16,
    learning_rate=5e-3,
    warmup_iterations=4,
    weight_decay=0.0,
    epsilon=1e-8,
    clip_norm=1.0,
    seed=0,
    micro_batch_size=8,
)
PAIRS = {"colour": ("red", "blue"), "animal": ("cat", "dog")}
"""By task, the words that ask for a yes and for a no."""


def questions(folder: Path, task: str, split: str, count: int) -> Texts:
    """Whether one word or the other stands among others: yes or no."""
    draw = np.random.default_rng([len(task), len(split)])
    found = []
    for _ in range(count):
        answer = int(draw.integers(2))
        others = list(draw.choice([w for w in WORDS if w not in (*PAIRS[task], "yes", "no")], draw.integers(1, 5)))
        found.append(Text(" ".join([PAIRS[task][answer], *others]), ("yes", "no"), answer))
    write_texts(folder / f"{task}-{split}.safetensors", found, {})
    return open_texts(folder / f"{task}-{split}.safetensors")


@pytest.mark.parametrize("adapter", [None, "ia3"])
def test_from_checkpoints_to_counts(adapter: str | None, tmp_path: Path) -> None:
    """A family that trains would still not merge: a vector measured from elsewhere, or tensors in another order."""
    spec: dict[str, Any] = {**SPEC, "architecture": {**ARCHITECTURE, "dropout_rate": 0.0}}
    spec |= {"adapter": adapter} if adapter else {}
    weights = tmp_path / "weights.safetensors"
    save_small(weights)
    splits = {"validation": 60, "test": 30}
    tasks = [
        TaskData(task, {split: questions(tmp_path, task, split, count) for split, count in splits.items()})
        for task in PAIRS
    ]
    vectors, tuned = {}, {}
    for task in PAIRS:
        model = load(spec, weights, device="cpu")
        trained = finetune(model, task, questions(tmp_path, task, "train", 200), CONFIG)
        tuned[task] = tmp_path / f"{task}.safetensors"
        vectors[task] = tmp_path / f"tau-{task}.safetensors"
        write_tensors(tuned[task], trained.checkpoint, {})
        initial = FAMILY.initial_state(spec, weights)
        compute_task_vector(weights, tuned[task], initial, vectors[task], {}, [0.2])
        assert trained.curve[-1][2] < trained.curve[0][2]
    evaluator = Evaluator(load(spec, weights, device="cpu"), tasks, batch_size=20, unit=FAMILY.unit)
    for place, task in enumerate(PAIRS):
        alone = evaluator.as_is("validation", np.array(open_tensors(tuned[task]).flat()))
        (added,) = zip(*evaluator.scaled("validation", open_task_vector(vectors[task]).flat, [1.0]), strict=True)
        assert abs(alone[place] - added[place]) <= 1, "theta_0 + tau is the checkpoint, but for a rounding"
        if adapter is None:
            assert alone[place] > 50, "it learned nothing, and so nothing is shown"
    write_multi_task_vector(methods.get_merge("sum"), "sum", list(vectors.values()), tmp_path / "sum", {"recipe": "r"})
    merged = open_multi_task_vector(tmp_path / "sum")
    counts = np.array(evaluator.scaled("validation", merged, [0.0, 0.5, 1.0]))
    assert counts.shape == (2, 3) and (counts[:, 0] == evaluator.as_is("validation", evaluator.model.initial())).all()
    write_mask_bundle(tmp_path / "masks", vectors, tmp_path / "sum", [0.2, 0.4], {"recipe": "r"})
    tables = statistics(open_mask_bundle(tmp_path / "masks"), dict.fromkeys(PAIRS, 0.4), merged, FAMILY.place)
    layers = list(dict.fromkeys(tables["tensors"]["layer"]))
    assert layers == (["0", "1", "d0", "d1"] if adapter else ["0", "1", "d0", "d1", "after"])
