"""The inputs of a network's linear layers while it runs, by forward hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

Receiver = Callable[[str, torch.Tensor], None]
"""Gets the name of a weight [m, n], and the inputs that it multiplies, [..., n]."""


@contextmanager
def watched(network: nn.Module, trained: Mapping[str, nn.Parameter], receive: Receiver) -> Iterator[None]:
    """A context in which every pass of `network` gives the inputs of its linear layers to `receive`.

    A linear layer is an `nn.Linear`.  Or it is an attention with one weight (``in_proj_weight``) and one input for
    queries, keys and values.  It must be called as a module, and its weight be in ``trained``, by name.
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
