"""A T5 and its (IA)^3 through the project's chain: subtracted from where they began, merged, masked, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small_t5 import SPEC, save_small, sentences, small_examples
from tallmasks import methods
from tallmasks.evaluation.counting import Evaluator, TaskData
from tallmasks.masks.mask_bundles import open_mask_bundle, write_mask_bundle
from tallmasks.masks.mask_statistics import statistics
from tallmasks.models.families import load
from tallmasks.models.t5 import FAMILY
from tallmasks.store.tensor_files import open_tensors, write_tensors
from tallmasks.tasks.texts import open_texts, write_texts
from tallmasks.vectors.multi_task_vectors import open_multi_task_vector, write_multi_task_vector
from tallmasks.vectors.task_vectors import compute_task_vector, open_task_vector

TASKS = ("colour", "animal")


@pytest.mark.parametrize("adapter", [{}, {"adapter": "ia3"}])
def test_from_checkpoints_to_counts(adapter: dict[str, str], tmp_path: Path) -> None:
    """A family that trains would still not merge: a vector measured from elsewhere, or tensors in another order."""
    spec: dict[str, Any] = {**SPEC, **adapter, "scoring": {"length_normalized": True}}
    weights = tmp_path / "weights.safetensors"
    save_small(weights)
    initial, vectors, tuned = FAMILY.initial_state(spec, weights), {}, {}
    draw = np.random.default_rng(0)
    for task in TASKS:
        tuned[task], vectors[task] = tmp_path / f"{task}.safetensors", tmp_path / f"tau-{task}.safetensors"
        moved = {name: (value + draw.normal(0, 0.7, value.shape)).astype("f4") for name, value in initial.items()}
        write_tensors(tuned[task], moved, {})
        compute_task_vector(weights, tuned[task], initial, vectors[task], {}, [0.2])
    model: Any = load(spec, weights, device="cpu")
    tasks = []
    for task in TASKS:  # whose right answers are what its own checkpoint gives
        model.use(torch.from_numpy(np.array(open_tensors(tuned[task]).flat())))
        (tmp_path / task).mkdir()
        with torch.inference_mode():
            scores = model.choice_scores(model.prepare(small_examples(tmp_path / task, 40)))[0]
        texts = [text._replace(answer=int(row.argmax())) for text, row in zip(sentences(40), scores, strict=True)]
        write_texts(tmp_path / task / "examples", texts, {})
        tasks.append(TaskData(task, {"validation": open_texts(tmp_path / task / "examples")}))
    evaluator = Evaluator(load(spec, weights, device="cpu"), tasks, batch_size=20, unit=FAMILY.unit)
    start = evaluator.as_is("validation", evaluator.model.initial())
    assert max(start) <= 36, "the weights do not matter, and so nothing is shown"
    for place, task in enumerate(TASKS):
        (added,) = zip(*evaluator.scaled("validation", open_task_vector(vectors[task]).flat, [1.0]), strict=True)
        assert added[place] >= 39, "theta_0 + tau is the checkpoint, but for a rounding"
    write_multi_task_vector(methods.get_merge("sum"), "sum", list(vectors.values()), tmp_path / "sum", {"recipe": "r"})
    merged = open_multi_task_vector(tmp_path / "sum")
    counts = np.array(evaluator.scaled("validation", merged, [0.0, 1.0]))
    assert counts.shape == (2, 2) and (counts[:, 0] == start).all()
    write_mask_bundle(tmp_path / "masks", vectors, tmp_path / "sum", [0.2, 0.4], {"recipe": "r"})
    tables = statistics(open_mask_bundle(tmp_path / "masks"), dict.fromkeys(TASKS, 0.4), merged, FAMILY.place)
    layers = list(dict.fromkeys(tables["tensors"]["layer"]))
    assert layers == (["0", "1", "d0", "d1"] if adapter else ["0", "1", "d0", "d1", "after"])
