"""Stores the trainable tensors of a network in one flat buffer; the parameters are views of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Receiver = Callable[[str, torch.Tensor], None]
"""Called with the name of a weight [m, n] and its inputs [..., n]."""


class FlatWeights:
    """The weights of a `reproduction.models.families.Model`, which documents the methods.

    ``parameters``: the trainable parameters by their names in a checkpoint, all on one device.
    """

    _network: Any

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.trainable: tuple[str, ...] = tuple(sorted(parameters))
        self.shapes: dict[str, tuple[int, ...]] = {name: tuple(parameters[name].shape) for name in self.trainable}
        self._parameters = [parameters[name] for name in self.trainable]
        for parameter in self._parameters:
            parameter.requires_grad_(True)
        self.device = self._parameters[0].device
        self._pretrained = torch.cat([parameter.detach().reshape(-1).float() for parameter in self._parameters])
        self._flat = self._pretrained
        self.use(self._pretrained)

    @property
    def flat(self) -> torch.Tensor:
        """The buffer in use.  The first access copies the pretrained weights, because callers can write to the buffer.

        On a GPU the original then moves to the CPU to save memory.
        """
        if self._flat is self._pretrained:
            self.use(self._pretrained.clone())
            self._pretrained = self._pretrained.cpu()
        return self._flat

    def use(self, flat: torch.Tensor) -> torch.Tensor:
        former, self._flat = self._flat, flat
        for parameter, view in zip(self._parameters, self._views(), strict=True):
            parameter.data = view
        return former

    def _views(self) -> list[torch.Tensor]:
        pieces = self._flat.split([parameter.numel() for parameter in self._parameters])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes.values(), strict=True)]

    def initial(self) -> torch.Tensor:
        return self._pretrained.to(self.device)

    def parameters(self) -> list[nn.Parameter]:
        _ = self.flat  # makes the parameters views of a copy
        return list(self._parameters)

    def named_arrays(self) -> dict[str, NDArray[np.float32]]:
        return {name: view.cpu().numpy().copy() for name, view in zip(self.trainable, self._views(), strict=True)}

    @contextmanager
    def watched(self, receive: Receiver) -> Iterator[None]:
        """See `WatchedModel.watched`.

        The layers are `nn.Linear`, and attention with one weight (``in_proj_weight``) and one input for queries, keys
        and values.  They must be called as modules.
        """
        names = {id(parameter): name for name, parameter in zip(self.trainable, self._parameters, strict=True)}
        hooks = []
        for module in self._network.modules():
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


def count_right(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The number of rows of logits [N, C] whose largest is that of the right class [N]; none with NaN, of a network
    that overflowed."""
    return ((logits.argmax(dim=1) == right) & ~logits.isnan().any(dim=1)).sum()
