"""The trainable tensors of a network in one flat buffer, of which its parameters are views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FlatWeights:
    """What of `tallmasks.models.families.Model` is the same for every network: its weights.

    Args:
        parameters: the trainable parameters by the names that a checkpoint has for them, on one device.

    Attributes:
        trainable: their names, sorted.
        shapes: their shapes, in the same order.
        device: where they are.
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
        """The buffer in use.  It may be written to, so the pretrained weights are copied when it is first asked for."""
        if self._flat is self._pretrained:
            self.use(self._pretrained.clone())
        return self._flat

    def use(self, flat: torch.Tensor) -> torch.Tensor:
        """Take the weights from another buffer, float32 [P'] on ``device``; copies nothing.  Returns the former one."""
        former, self._flat = self._flat, flat
        for parameter, view in zip(self._parameters, self._views(), strict=True):
            parameter.data = view
        return former

    def _views(self) -> list[torch.Tensor]:
        pieces = self._flat.split([parameter.numel() for parameter in self._parameters])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes.values(), strict=True)]

    def initial(self) -> torch.Tensor:
        """The trainable tensors as they were loaded, float32 [P']; not a copy, so not to be written to."""
        return self._pretrained

    def parameters(self) -> list[torch.nn.Parameter]:
        """The trainable parameters in the order of ``trainable``, for an optimizer: views of ``flat``."""
        _ = self.flat
        return list(self._parameters)

    def named_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the trainable tensors by name, float32, as a checkpoint stores them."""
        return {name: view.cpu().numpy().copy() for name, view in zip(self.trainable, self._views(), strict=True)}
