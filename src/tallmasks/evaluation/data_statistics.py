"""Statistics of a task's data: second moments of layer inputs, and squared gradients.

One example at a time: no padding, and results do not depend on the batch size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.models.families import Batch, Examples, WatchedModel


def layer_grams(model: WatchedModel, examples: Examples) -> dict[str, NDArray[np.float32]]:
    """X^T X / n of every linear layer, float32 [k, k], by the name of its weight [m, k] (Jin et al. 2023, RegMean).

    X [n, k] holds the layer's inputs, one row per token.  Products are float32 per example; sums are float64.

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
        raise TallmasksError("none of the network's linear layers reported its inputs; expected at least one")
    return {name: (sums[name] / rows[name]).float().cpu().numpy() for name in sorted(sums)}


def squared_gradients(model: WatchedModel, examples: Examples) -> dict[str, NDArray[np.float32]]:
    """Diagonal of the Fisher information for Fisher merging (Matena and Raffel 2022), float32 by tensor.

    Mean over examples of the squared gradient of sum_c sqrt(p_c) log p_c, with the factor sqrt(p_c) held fixed: every
    class counts by its probability; labels are not used.  MergeLM's `fisher_merging` (yule-BUAA/MergeLM) is the same,
    but sums the gradients of a batch before squaring.  For text, c runs over the target's tokens.
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
    "grams": layer_grams,
    "fisher": squared_gradients,
}
"""By the names that merges ask for.  A new one also needs an entry in `tallmasks.models.families.STATISTICS`."""
