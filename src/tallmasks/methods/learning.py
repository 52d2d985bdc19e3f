"""What a merge can learn from: the network, and examples of its tasks without their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector

Loss = Callable[[Any], Any]
"""From log-probabilities [N, C], with gradients, to a scalar."""


class Network(Protocol):
    """The pretrained network with unlabelled validation examples of T tasks.

    Vectors are torch tensors float32 [P'] on the network's device.  Their own functions are enough to compute with
    them, so that a file of methods imports no torch.

    Attributes:
        task_vectors: of the T tasks.
        layout: the names and shapes of the trainable tensors.
        generator: torch's, of the device, for random numbers.
    """

    @property
    def task_vectors(self) -> Sequence[TaskVector]: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def generator(self) -> Any: ...

    def place(self, flat: NDArray[np.float32]) -> Any:
        """A copy of a vector on the device."""

    def gradient(self, update: Any, task: int, size: int, loss: Loss) -> Any:
        """The gradient, [P'], with respect to the update, of a loss of theta_0 + update.

        The loss gets log-probabilities of the choices, float32 [N, C], for ``size`` examples.  Every call draws them
        anew; all of them where the task has fewer.
        """

    def report(self, step: int, steps: int) -> None:
        """Tell people how far it is."""
