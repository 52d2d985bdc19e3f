"""Statistics of a task's data: second moments of layer inputs, and squared gradients.

Examples are processed one at a time, so there is no padding and results do not depend on a batch size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from reproduction.models.families import Batch, Examples, WatchedModel
from tallmasks.errors import TallmasksError
from tallmasks.methods.merges import FISHER, GRAMS


def layer_grams(model: WatchedModel, examples: Examples) -> dict[str, NDArray[np.float32]]:
    """X^T X / n of every linear layer, float32 [k, k], by the name of its weight [m, k] (Jin et al. 2023, RegMean).

    X [n, k] contains the layer's inputs, one row per token. Products are computed in float32 per example and summed in
    float64.

    Raises TallmasksError if no linear layer ran.
    """
    sums: dict[str, torch.Tensor] = {}
    rows: Counter[str] = Counter()

    def add(name: str, inputs: torch.Tensor) -> None:
        tokens = inputs.detach().reshape(-1, inputs.shape[-1]).float()
        product = tokens.T @ tokens
        if name in sums:
            sums[name] += product
        else:
            sums[name] = product.double()
        rows[name] += len(tokens)

    with torch.no_grad(), model.watched(add):
        for batch in _one_by_one(model, examples):
            model.log_probabilities(batch)
    if not sums:
        raise TallmasksError("no linear layer of the network reported its inputs; expected at least one")
    return {name: (sums[name] / rows[name]).float().cpu().numpy() for name in sorted(sums)}


def squared_gradients(model: WatchedModel, examples: Examples) -> dict[str, NDArray[np.float32]]:
    """Diagonal of the Fisher information for Fisher merging (Matena and Raffel 2022), float32 by tensor.

    The mean over examples of the squared gradient of sum_c sqrt(p_c) log p_c, where the factor sqrt(p_c) is constant.
    c runs over the classes or, for text, over the target's tokens. Labels are not used. `fisher_merging` in
    yule-BUAA/MergeLM is the same, except that it sums the gradients of a batch before squaring.
    """
    parameters = model.parameters()
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for batch in _one_by_one(model, examples):
        logs = model.log_probabilities(batch)
        expected = ((logs.detach() / 2).exp() * logs).sum()
        gradients = torch.autograd.grad(expected, parameters, allow_unused=True)
        for sum_, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                sum_ += gradient.square()
    return {
        name: (sum_ / len(examples)).detach().cpu().numpy() for name, sum_ in zip(model.trainable, total, strict=True)
    }


def _one_by_one(model: WatchedModel, examples: Examples) -> Iterator[Batch]:
    return (model.prepare(examples[index : index + 1]) for index in range(len(examples)))


COMPUTED: dict[str, Callable[[WatchedModel, Examples], dict[str, NDArray[np.float32]]]] = {
    GRAMS.name: layer_grams,
    FISHER.name: squared_gradients,
}
"""By name. A new one also needs entries in `reproduction.models.families.STATISTICS` and
`reproduction.plan.chain.STAGE_OF`."""
