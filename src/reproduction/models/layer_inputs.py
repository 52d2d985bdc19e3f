"""Reads the inputs of a network's linear layers with forward hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

Receiver = Callable[[str, torch.Tensor], None]
"""Called with the name of a weight [m, n] and its inputs [..., n]."""


@contextmanager
def watched(network: nn.Module, trained: Mapping[str, nn.Parameter], receive: Receiver) -> Iterator[None]:
    """A context in which every forward pass of `network` calls `receive` for each linear layer.

    These are `nn.Linear` layers, and attention layers with one weight (``in_proj_weight``) and one input for queries,
    keys and values.  Layers must be called as modules; those whose weight is not in ``trained`` are skipped.
    """
    names = {id(parameter): name for name, parameter in trained.items()}
    hooks = []
    for module in network.modules():
        weight = module.weight if isinstance(module, nn.Linear) else getattr(module, "in_proj_weight", None)
        if (name := names.get(id(weight))) is not None:
            hooks.append(module.register_forward_pre_hook(_hook(name, receive)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _hook(name: str, receive: Receiver) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        first, *others = (value for value in inputs if isinstance(value, torch.Tensor))
        if isinstance(module, nn.Linear) or all(other is first for other in others):
            receive(name, first)

    return hook
