"""Minimises the entropy of a merged model on unlabelled data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np

from tallmasks.methods import Between, Network, Statistics, Vector

Count = Annotated[int, Between(1, 100_000)]
START = 0.3
FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Adam (Kingma and Ba 2015) for values of one shape, NumPy arrays or torch tensors."""

    def __init__(self, learning_rate: float) -> None:
        self._rate, self._steps = learning_rate, 0
        self._first: Any = 0.0
        self._second: Any = 0.0

    def step(self, gradient: Any) -> Any:
        """What to add to the values."""
        self._steps += 1
        self._first = FIRST * self._first + (1 - FIRST) * gradient
        self._second = SECOND * self._second + (1 - SECOND) * gradient**2
        scale = (self._second / (1 - SECOND**self._steps)) ** 0.5 + EPSILON
        return -self._rate / (1 - FIRST**self._steps) * self._first / scale


def entropy(logs: Any) -> Any:
    """The mean over examples of -sum_c p_c log p_c, from log-probabilities [N, C]."""
    return -(logs.exp() * logs).sum(dim=1).mean()


def most_certain(
    network: Network,
    flats: Sequence[Vector],
    by: Literal["tensor", "task"],
    steps: int,
    learning_rate: float,
    examples: int,
) -> Statistics:
    """The lambda_t in 0 to 1, float32 [T] by tensor, that minimise the entropy of theta_0 + sum_t lambda_t tau_t.

    The entropy is summed over the tasks. ``flats``: the tau_t, float32 [P'] each.
    """
    names, vectors = network.layout.names, [network.to_device(flat) for flat in flats]
    index_of = {name: index if by == "tensor" else 0 for index, name in enumerate(names)}
    parts = {name: [vector[part] for vector in vectors] for name, part in network.layout.parts.items()}
    values, adam = np.full((max(index_of.values()) + 1, len(vectors)), START), Adam(learning_rate)
    for step in range(1, steps + 1):
        update = vectors[0].clone()
        for name, part in network.layout.parts.items():
            own = values[index_of[name]].clip(0, 1)
            update[part] = sum(float(value) * vector for value, vector in zip(own, parts[name], strict=True))
        gradient = sum(network.gradient(update, task, examples, entropy) for task in range(len(vectors)))
        slopes = np.zeros_like(values)
        for name, part in network.layout.parts.items():
            slopes[index_of[name]] += [float(gradient[part] @ vector) for vector in parts[name]]
        values = values + adam.step(slopes * ((values >= 0) & (values <= 1)))
        network.report(step, steps)
    return {name: values[index].clip(0, 1).astype(np.float32) for name, index in index_of.items()}
