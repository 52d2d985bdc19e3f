"""The boundary to the model families: everything that knows an architecture lies behind :class:`Model`.

Merging, masks, consensus, selection, storage and tables see flat arrays only. Fine-tuning and evaluation see this
protocol.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.errors import TallmasksError
from tallmasks.tasks import Task

if TYPE_CHECKING:
    import torch

    from tallmasks.models.cuda import Wanted

FAMILIES = ("clip",)
Precision = Literal["float32", "bfloat16"]


class Model(Protocol):
    """A pretrained network whose trainable tensors lie in one flat buffer.

    Attributes:
        trainable: Names of the trainable tensors as the pretrained file has them, sorted.
        shapes: Shape of each trainable tensor, in the order of ``trainable``.
        device: Where the network is and computes.
        image_size: Pixels to a side of what the network takes.
    """

    trainable: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    device: "torch.device"
    image_size: int

    @property
    def flat(self) -> "torch.Tensor":
        """float32 [P'] on ``device``, the trainable tensors one after the other. They are views into it, so writing to
        it in place changes the network."""

    def use(self, flat: "torch.Tensor") -> "torch.Tensor":
        """Take the weights from another buffer, float32 [P'] on ``device``, which becomes ``flat``; copies nothing.

        Returns the buffer that was in use.
        """

    def pretrained_flat(self) -> "torch.Tensor":
        """The trainable tensors as they were loaded, float32 [P'] on ``device``; the model's own, not to be written."""

    def parameters(self) -> "list[torch.nn.Parameter]":
        """The trainable parameters in the order of ``trainable``, for an optimizer."""

    def parameter_counts(self) -> tuple[int, int]:
        """P' and F of the paper's storage formula: trainable and frozen parameters."""

    def head(self, task: Task) -> "torch.Tensor":
        """The frozen zero-shot head of a task, float32 [C, D]."""

    def prepare(self, images: "NDArray[np.uint8] | torch.Tensor") -> "torch.Tensor":
        """Images [N, H, W, 3] as the network takes them, float32 on ``device``."""

    def logits(self, prepared: "torch.Tensor", head: "torch.Tensor") -> "torch.Tensor":
        """Scores [N, C] of prepared images for every class of a head."""

    def named_arrays(self) -> "dict[str, NDArray[np.float32]]":
        """Copies of the trainable tensors by name, as a checkpoint stores them."""


def load(
    spec: Mapping[str, Any], weights: Path, precision: Precision = "float32", device: "Wanted | None" = None
) -> Model:
    """Build a model as params.yaml describes it and load its pretrained weights.

    Args:
        spec: The model's entry in params.yaml: ``family`` and what that family needs.
        weights: The pretrained safetensors file.
        precision: Of the network's products; "bfloat16" is mixed precision, with the weights in float32.
        device: "cuda" or "cpu"; a GPU if there is one, where nothing is said.

    Raises:
        TallmasksError: If the family is unknown, the file does not hold what the architecture needs, or a GPU is asked
            for and cannot be had.
    """
    return _family(spec).load(spec, weights, precision, device)


def convert_pretrained(spec: Mapping[str, Any], weights: Path) -> "dict[str, NDArray[np.float32]]":
    """The tensors of a file of pretrained weights, in any form that the family knows, as `load` reads them.

    Raises:
        TallmasksError: If the file does not hold what the architecture needs.
    """
    return _family(spec).convert_pretrained(spec, weights)


def download_pretrained(spec: Mapping[str, Any], pretrained: Mapping[str, Any]) -> tuple[Path, dict[str, str]]:
    """The file that the ``pretrained`` key of params.yaml names, and where it comes from, for the provenance.

    Raises:
        TallmasksError: If it cannot be had; the message says what to do.
    """
    return _family(spec).download_pretrained(spec, pretrained)


def parameter_counts(spec: Mapping[str, Any]) -> tuple[int, int]:
    """P' and F of the paper's storage formula, from the architecture alone: no weights are needed."""
    return _family(spec).parameter_counts(spec)


def _family(spec: Mapping[str, Any]) -> Any:
    family = spec.get("family")
    if family != "clip":
        raise TallmasksError(f"No model family is named {family!r}. There are: {', '.join(FAMILIES)}.")
    from tallmasks.models.clip import network as clip  # open_clip takes ten seconds to import

    return clip
