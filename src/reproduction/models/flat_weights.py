"""Stores the trainable tensors of a network in one flat buffer; the parameters are views of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FlatWeights:
    """The weights of a `reproduction.models.families.Model`, which documents the methods.

    ``parameters``: the trainable parameters by their names in a checkpoint, all on one device.
    """

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
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

    def parameters(self) -> list[torch.nn.Parameter]:
        _ = self.flat  # makes the parameters views of a copy
        return list(self._parameters)

    def named_arrays(self) -> dict[str, NDArray[np.float32]]:
        return {name: view.cpu().numpy().copy() for name, view in zip(self.trainable, self._views(), strict=True)}


def count_right(logits: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The number of rows of logits [N, C] whose largest is that of the right class [N]; none with NaN, of a network
    that overflowed."""
    return ((logits.argmax(dim=1) == right) & ~logits.isnan().any(dim=1)).sum()
