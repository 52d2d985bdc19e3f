"""The training loop on a small T5: its dropout is a part of a saved training, its batches weigh by tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resumption import ends_as_undisturbed
from small_t5 import SPEC, save_small, small_examples
from tallmasks.models.families import load
from tallmasks.training.finetuning import FinetuneConfig, FinetuneResult, Progress, finetune
from tallmasks.training.unfinished import TrainingState

CONFIG = FinetuneConfig(
    iterations=14,
    batch_size=8,
    micro_batch_size=3,
    learning_rate=3e-3,
    schedule="constant",
    weight_decay=0.0,
    epsilon=1e-8,
    seed=0,
    validate_every=4,
    patience=3,
)


def run(
    spec: dict[str, Any],
    folder: Path,
    config: FinetuneConfig = CONFIG,
    state: TrainingState | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> FinetuneResult:
    weights = folder / "weights.safetensors"
    if not weights.exists():
        save_small(weights)
    (folder / "train").mkdir(exist_ok=True)
    train, validation = small_examples(folder / "train", 40), small_examples(folder, 12, seed=1)
    model = load(spec, weights, device="cpu")
    result = finetune(model, "qasc", train, config, report, state, validation=validation)
    again = [int(model.count_right(batch)) for batch in model.batches(validation, 5)]
    assert sum(again) / 12 == max(score for _, score in result.validation), (
        "the best weights are in use, dropout is off"
    )
    return result


@pytest.mark.parametrize("adapter", [None, "ia3"])
@pytest.mark.parametrize("stop", [4, 10])
def test_a_killed_training_ends_as_an_undisturbed_one(tmp_path: Path, adapter: str | None, stop: int) -> None:
    """After an interruption other units would be dropped, and the checkpoint be another one than the recipe's."""
    spec = {**SPEC, "adapter": adapter} if adapter else SPEC
    ends_as_undisturbed(lambda state, report: run(spec, tmp_path, state=state, report=report), tmp_path, stop)


def test_dropout_is_at_work_and_follows_the_seed(tmp_path: Path) -> None:
    """The paper's dropout would be switched off, or be another one in every run."""
    still = {**SPEC, "architecture": {**SPEC["architecture"], "dropout_rate": 0.0}}
    first, again, without = run(SPEC, tmp_path), run(SPEC, tmp_path), run(still, tmp_path)
    assert first.curve == again.curve and first.curve[0] != without.curve[0]
    assert run(SPEC, tmp_path, replace(CONFIG, seed=1)).curve != first.curve


def test_pieces_of_a_batch_sum_to_the_whole(tmp_path: Path) -> None:
    """How much memory a GPU has would decide what is learned: long answers weigh more than short ones."""
    still = {**SPEC, "architecture": {**SPEC["architecture"], "dropout_rate": 0.0}}
    config = replace(CONFIG, epsilon=1e-3, iterations=6)
    whole, parts = (run(still, tmp_path, replace(config, micro_batch_size=size)) for size in (None, 3))
    np.testing.assert_allclose(
        [loss for *_, loss in whole.curve], [loss for *_, loss in parts.curve], rtol=1e-4, atol=1e-4
    )
