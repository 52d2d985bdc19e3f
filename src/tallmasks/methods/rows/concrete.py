"""Concrete task arithmetic: one soft mask over the sum of the task vectors, learned from unlabelled data."""

from collections.abc import Sequence

from tallmasks.methods import Fixed, Network, Share, Statistics, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.rows.parts.entropy_minimisation import Count, entropy
from tallmasks.methods.rows.task_arithmetic import sum_merge

TEMPERATURE, LEAST = 0.5, 1e-6


def learn(
    net: Network, *, steps: Count = 2000, rate: Share = 1e-3, batch: Count = 16, coefficient: Share = 0.3
) -> Statistics:
    """The mask divided by its mean in each tensor, float32 by tensor.

    Adam minimises the entropy of theta_0 + coefficient * mask * sum_t tau_t, summed over the tasks. Each step samples
    the mask from a concrete distribution, sigmoid((logits + logistic noise) / temperature). Like FusionBench
    (tanganke/fusion_bench, clip_concrete_task_arithmetic.py), except that the final mask is not sampled.
    """
    import torch

    total = sum(net.to_device(vector.flat) for vector in net.task_vectors) * coefficient
    logits = torch.zeros_like(total)
    optimizer = torch.optim.Adam([logits], lr=rate)
    for step in range(1, steps + 1):
        chance = (total * 0).uniform_(LEAST, 1 - LEAST, generator=net.generator)
        mask = ((chance.log() - (1 - chance).log() + logits) / TEMPERATURE).sigmoid()
        update = total.clone()
        for part in net.layout.parts.values():
            update[part] *= mask[part] / mask[part].mean()
        slope = sum(net.gradient(update, task, batch, entropy) for task in range(len(net.task_vectors))) * total
        for part in net.layout.parts.values():
            mean, weighted = mask[part].mean(), (slope[part] * mask[part]).mean()
            slope[part] = slope[part] / mean - weighted / mean**2
        logits.grad = slope * mask * (1 - mask) / TEMPERATURE
        optimizer.step()
        net.report(step, steps)
    mask = (logits / TEMPERATURE).sigmoid().cpu().numpy()
    return {name: values / values.mean() for name, values in net.layout.split(mask).items()}


@merge("concrete", learn=learn)
def masked_sum(vectors: Sequence[Vector], piece: TensorPiece, masks: Statistics, *, coefficient: Share = 0.3) -> Vector:
    """coefficient * mask * sum_t tau_t."""
    mask = masks[piece.name].reshape(-1)[piece.start : piece.stop]
    return sum_merge(vectors, piece, None) * (mask * mask.dtype.type(coefficient))


merged_row("concrete", order=36, title="Concrete TA", paper="Tang et al. 2023", usage=Fixed(1.0), group="later")
