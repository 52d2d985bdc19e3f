"""A training that was killed and resumed must equal one that was not, bit for bit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reproduction.artifacts.labels import as_metadata
from reproduction.training.finetuning import FinetuneResult
from reproduction.training.unfinished import TrainingState

Run = Callable[[TrainingState | None, Callable[[Any], None]], FinetuneResult]
"""A training from a saved state on, which it keeps, that reports its progress."""


class Killed(Exception):
    """Stands for kill -9: nothing that comes after it runs."""


def always_due(path: Path, making: Mapping[str, str]) -> TrainingState:
    """A state that is saved whenever no save is being written; the clock stands still."""
    return TrainingState(path, making, seconds=0, clock=lambda: 0.0)


def ends_as_undisturbed(run: Run, folder: Path, stop: int) -> FinetuneResult:
    """Trains once whole, and once killed after `stop` steps and begun again with other random numbers around it; both
    are the same.  Gives the whole one."""

    def kill(progress: Any) -> None:
        state.wait()  # so that the next save, too, is due
        if progress.step > stop:
            raise Killed

    undisturbed = run(None, lambda progress: None)
    state = always_due(folder / "training.safetensors", as_metadata({}))
    with pytest.raises(Killed):
        run(state, kill)
    assert state.path.exists()
    torch.manual_seed(stop)
    steps: list[int] = []
    resumed = run(always_due(state.path, state.making), lambda progress: steps.append(progress.step))
    assert steps[0] > stop, "it began anew"
    assert (resumed.curve, resumed.validation, resumed.step) == (
        undisturbed.curve, undisturbed.validation, undisturbed.step,
    )  # fmt: skip
    for name, tensor in undisturbed.checkpoint.items():
        np.testing.assert_array_equal(resumed.checkpoint[name], tensor)
    state.remove()
    assert not state.path.exists()
    return undisturbed
