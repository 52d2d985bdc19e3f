"""What is known of a task's data beside its checkpoint: second moments of layer inputs, and squared gradients.

Both look at one example at a time, so that nothing is padding, and no result depends on how examples are put together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.models.families import Batch, Examples, WatchedModel
from tallmasks.store.errors import TallmasksError


def layer_grams(model: WatchedModel, examples: Examples) -> dict[str, NDArray[np.float32]]:
    """X^T X / n of every linear layer, float32 [k, k] by the name of its weight [m, k], where X [n, k] is what enters
    it of all examples, token after token (Jin et al. 2023, RegMean).

    Products are float32, one for each example; their sums are float64.

    Raises:
        TallmasksError: no linear layer ran.
    """
    sums: dict[str, torch.Tensor] = {}
    rows: Counter[str] = Counter()

    def told(name: str, inputs: torch.Tensor) -> None:
        tokens = inputs.detach().reshape(-1, inputs.shape[-1]).float()
        product = tokens.T @ tokens
        if name in sums:
            sums[name] += product
        else:
            sums[name] = product.double()
        rows[name] += len(tokens)

    with torch.no_grad(), model.watched(told):
        for batch in _one_by_one(model, examples):
            model.log_probabilities(batch)
    if not sums:
        raise TallmasksError("none of the network's linear layers told what enters it; expected one at least")
    return {name: (sums[name] / rows[name]).float().cpu().numpy() for name in sorted(sums)}


def squared_gradients(model: WatchedModel, examples: Examples) -> dict[str, NDArray[np.float32]]:
    """The diagonal of the Fisher information as Fisher merging estimates it, float32 by tensor.

    It is the mean over examples of the squared gradient of sum_c sqrt(p_c) log p_c, p being what the network takes for
    probable, held fixed: neither the labels nor the most probable class decide, but all classes by their probability.
    So does the official code of Matena and Raffel 2022 as MergeLM has it (yule-BUAA/MergeLM, `fisher_merging`), where
    the gradients of a batch are added before they are squared, so that its batch size counts; here it is 1.  Of text,
    the choices are the target's tokens, one after the other.
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
    return (model.prepare(examples[place : place + 1]) for place in range(len(examples)))
