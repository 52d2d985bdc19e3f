"""When an unfinished training is saved, and what of it."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tallmasks.models.flat_weights import FlatWeights
from tallmasks.store.artifacts import as_metadata, facts_of
from tallmasks.store.errors import TallmasksError
from tallmasks.training import unfinished
from tallmasks.training.batches import ShuffledBatches
from tallmasks.training.finetuning import adamw
from tallmasks.training.unfinished import TrainingState, Underway

MAKING = as_metadata(facts_of({}, {}, 1))


class Standing:
    """A training that makes no steps."""

    def snapshot(self) -> dict[str, torch.Tensor]:
        return {"weights": torch.ones(3)}


STANDING: Any = Standing()


def test_a_save_is_written_beside_training_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps would wait for the disk; or a training end, and remove its state, while it is being written."""
    may_end, ended = threading.Event(), []

    def write(*rest: Any) -> None:
        may_end.wait(60)
        ended.append(rest)

    class Waiting(TrainingState):
        def wait(self) -> None:
            if self._save:
                may_end.set()
            super().wait()

    monkeypatch.setattr(unfinished, "write_tensors", write)
    with Waiting(tmp_path / "state", MAKING, seconds=0, clock=lambda: 0.0) as state:
        for _ in range(3):
            state.save_if_due(STANDING)
        assert not ended, "one is being written: the others are not waited for, and not begun"
    waited_for = list(ended)
    may_end.set()
    assert len(waited_for) == 1


def test_an_error_of_a_save_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk a training would go on for days without a state to continue from."""

    def refuse(*rest: Any) -> None:
        raise TallmasksError("no space")

    monkeypatch.setattr(unfinished, "write_tensors", refuse)
    with pytest.raises(TallmasksError, match="no space"), TrainingState(tmp_path / "state", MAKING, seconds=0) as state:
        state.clock = lambda: 1e9
        state.save_if_due(STANDING)


def training_of_one_step() -> Underway:
    """Three tensors are trained."""
    shapes = {"a": (4, 3), "b": (5,), "c": (2, 2)}
    model: Any = FlatWeights({name: torch.nn.Parameter(torch.ones(shape)) for name, shape in shapes.items()})
    optimizer = adamw(model, learning_rate=0.1, weight_decay=0.0, epsilon=1e-8)
    generator = torch.Generator()
    training = Underway(model, optimizer, generator, ShuffledBatches(10, 4, generator), 4)
    training.curve.append((1, 0.1, 1.0))
    training.drawn = training.draws()
    step(training)
    return training


def step(training: Underway) -> None:
    for parameter in training.model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    training.optimizer.step()


def test_a_snapshot_does_not_change_with_the_next_steps() -> None:
    """A save, written while training goes on, would mix two steps."""
    training = training_of_one_step()
    saved = training.snapshot()
    before = {name: tensor.clone() for name, tensor in saved.items()}
    step(training)
    after = training.snapshot()
    assert all(torch.equal(saved[name], tensor) for name, tensor in before.items())
    assert not any(torch.equal(after[name], saved[name]) for name in ("weights", "exp_avg", "exp_avg_sq"))
