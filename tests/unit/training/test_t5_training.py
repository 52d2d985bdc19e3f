"""The training loop on a small T5: its dropout is a part of a saved training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resumption import ends_as_undisturbed
from small_t5 import SPEC, save_small, small_examples
from tallmasks.models.families import load
from tallmasks.training.finetuning import FinetuneConfig, FinetuneResult, Progress, finetune
from tallmasks.training.unfinished import TrainingState

CONFIG = FinetuneConfig(
    iterations=8,
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


@pytest.mark.parametrize("adapter", [{}, {"adapter": "ia3"}])
def test_a_killed_training_ends_as_an_undisturbed_one(tmp_path: Path, adapter: dict[str, str]) -> None:
    """After an interruption other units would be dropped, and the checkpoint be another one than the recipe's."""
    save_small(tmp_path / "weights.safetensors")
    (tmp_path / "train").mkdir()
    train, validation = small_examples(tmp_path / "train", 40), small_examples(tmp_path, 12, seed=1)

    def run(state: TrainingState | None, report: Callable[[Progress], None]) -> FinetuneResult:
        model: Any = load(
            {**SPEC, **adapter, "scoring": {"max_input_tokens": 20}}, tmp_path / "weights.safetensors", device="cpu"
        )
        result = finetune(model, "qasc", train, CONFIG, report, state, validation=validation)
        again = [int(model.count_right(batch)) for batch in model.batches(validation, 5)]
        best = max(score for _, score in result.validation)
        assert sum(again) / 12 == best, "the best weights are in use, dropout is off"
        return result

    ends_as_undisturbed(run, tmp_path, stop=4)
