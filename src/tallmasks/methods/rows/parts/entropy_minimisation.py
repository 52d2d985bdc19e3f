"""Minimises the entropy of a merged model on unlabelled data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from tallmasks.methods import Between, Network, Statistics, Vector

Count = Annotated[int, Between(1, 100_000)]
START = 0.3


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
    import torch

    names, vectors = network.layout.names, [network.to_device(flat) for flat in flats]
    index_of = {name: index if by == "tensor" else 0 for index, name in enumerate(names)}
    parts = {name: [vector[part] for vector in vectors] for name, part in network.layout.parts.items()}
    values = torch.full((max(index_of.values()) + 1, len(vectors)), START, dtype=torch.float64)
    optimizer = torch.optim.Adam([values], lr=learning_rate)
    for step in range(1, steps + 1):
        update = vectors[0].clone()
        for name, part in network.layout.parts.items():
            shares = values[index_of[name]].clip(0, 1).tolist()
            update[part] = sum(share * vector for share, vector in zip(shares, parts[name], strict=True))
        gradient = sum(network.gradient(update, task, examples, entropy) for task in range(len(vectors)))
        slopes = torch.zeros_like(values)
        for name, part in network.layout.parts.items():
            slopes[index_of[name]] += torch.tensor([float(gradient[part] @ vector) for vector in parts[name]])
        values.grad = slopes * ((values >= 0) & (values <= 1))
        optimizer.step()
        network.report(step, steps)
    return {name: values[index].clip(0, 1).float().numpy() for name, index in index_of.items()}
