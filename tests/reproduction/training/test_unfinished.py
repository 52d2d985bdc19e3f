"""Saves of an unfinished training and the devices of its tensors. The GPU is torch's fake one, without values."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from reproduction.artifacts.labels import as_metadata
from reproduction.models.flat_weights import FlatWeights
from reproduction.training.finetuning import ShuffledBatches, adamw
from reproduction.training.unfinished import TrainingRun, TrainingState

MAKING = as_metadata({})


class Standing:
    """A training without steps."""

    def snapshot(self) -> dict[str, torch.Tensor]:
        return {"weights": torch.ones(3)}


STANDING: Any = Standing()


def test_an_error_of_a_save_ends_the_training(tmp_path: Path) -> None:
    """On a full disk a training would run for days without a state to continue from."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError), TrainingState(tmp_path / "file" / "state", MAKING, 0, clock=lambda: 0.0) as state:
        state.save_if_due(STANDING)


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


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's device "cuda" without a GPU: tensors have shapes and devices, but no values."""
    monkeypatch.setattr(torch.cuda, "default_generators", (torch.default_generator,))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    with FakeTensorMode():
        yield


@pytest.mark.usefixtures("fake_gpu")
def test_a_training_continues_on_the_gpu() -> None:
    """A continued training would fail at its first step, because a tensor of the optimizer is on the CPU."""
    saved = training_on("cuda").snapshot()
    with torch._subclasses.fake_tensor.unset_fake_temporarily():
        real = training_on("cpu").snapshot()
    training = training_on("cuda")
    training.take(saved | {name: real[name] for name in ("curve", "generator", "dropout")})
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
