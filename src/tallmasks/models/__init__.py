"""The boundary to the model families: everything that knows an architecture lies behind :class:`Model`.

Merging, masks, consensus, selection, storage and tables see flat arrays only. Fine-tuning and evaluation see this
protocol.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.tasks import Task

if TYPE_CHECKING:
    import torch

FAMILIES = ("clip",)


class Model(Protocol):
    """A pretrained network whose trainable tensors lie in one flat buffer.

    Attributes:
        trainable: Names of the trainable tensors as the pretrained file has them, sorted.
        shapes: Shape of each trainable tensor, in the order of ``trainable``.
        flat: float32 [P'], the trainable tensors one after the other. They are views into it, so writing to it in
            place changes the network.
    """

    trainable: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    flat: "torch.Tensor"

    def pretrained_flat(self) -> "torch.Tensor":
        """A copy of the flat buffer as it was loaded, float32 [P']."""

    def parameters(self) -> "list[torch.nn.Parameter]":
        """The trainable parameters in the order of ``trainable``, for an optimizer."""

    def parameter_counts(self) -> tuple[int, int]:
        """P' and F of the paper's storage formula: trainable and frozen parameters."""

    def head(self, task: Task) -> "torch.Tensor":
        """The frozen zero-shot head of a task, float32 [C, D]."""

    def prepare(self, images: "NDArray[np.uint8] | torch.Tensor") -> "torch.Tensor":
        """Images [N, H, W, 3] as the network takes them, float32."""

    def logits(self, prepared: "torch.Tensor", head: "torch.Tensor") -> "torch.Tensor":
        """Scores [N, C] of prepared images for every class of a head."""

    def named_arrays(self) -> "dict[str, NDArray[np.float32]]":
        """Copies of the trainable tensors by name, as a checkpoint stores them."""


def load(spec: Mapping[str, Any], weights: Path) -> Model:
    """Build a model as params.yaml describes it and load its pretrained weights.

    Args:
        spec: The model's entry in params.yaml: ``family`` and what that family needs.
        weights: The pretrained safetensors file.

    Raises:
        TallmasksError: If the family is unknown, or the file does not hold what the architecture needs.
    """
    family = spec.get("family")
    if family != "clip":
        raise TallmasksError(f"No model family is named {family!r}. There are: {', '.join(FAMILIES)}.")
    from tallmasks.models import clip  # open_clip takes ten seconds to import

    return clip.load(spec["architecture"], weights)
