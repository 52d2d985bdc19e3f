"""What enters the linear layers of a network while it runs, as forward hooks see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

Told = Callable[[str, torch.Tensor], None]
"""Gets the name of a weight [m, n], and what is multiplied by it, [..., n]."""


@contextmanager
def watched(network: nn.Module, trained: Mapping[str, nn.Parameter], told: Told) -> Iterator[None]:
    """A context in which every pass of `network` tells what enters its linear layers.

    A linear layer is an `nn.Linear`, or an attention whose queries, keys and values have one weight
    (``in_proj_weight``) and one input; where they have several inputs, nothing is told.

    Args:
        network: its layers must be called as modules.
        trained: the weights that count, by name; of others nothing is told.
        told: is called in the pass, once for each call of a layer.
    """
    names = {id(parameter): name for name, parameter in trained.items()}
    hooks = []
    for module in network.modules():
        weight = module.weight if isinstance(module, nn.Linear) else getattr(module, "in_proj_weight", None)
        if (name := names.get(id(weight))) is not None:
            hooks.append(module.register_forward_pre_hook(_telling(name, told)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _telling(name: str, told: Told) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        first, *others = (value for value in inputs if isinstance(value, torch.Tensor))
        if isinstance(module, nn.Linear) or all(other is first for other in others):
            told(name, first)

    return hook
