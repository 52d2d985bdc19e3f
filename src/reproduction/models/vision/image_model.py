"""What the networks of vision models share: batches of images, with augmentation, and their loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reproduction.models import cuda
from reproduction.models.vision.augmentation import augment, crop_and_resize, random_crops
from reproduction.models.vision.image_examples import ImageExamples


@dataclass(frozen=True)
class ImageBatch:
    """Preprocessed images float32 [N, 3, H, W], labels ``right`` int64 [N], and the head, see `ImageExamples`."""

    pixels: torch.Tensor
    right: torch.Tensor
    head: Any

    def __len__(self) -> int:
        return len(self.right)

    @property
    def weight(self) -> float:
        return len(self)

    def split(self, size: int) -> list[ImageBatch]:
        pieces = zip(self.pixels.split(size), self.right.split(size), strict=True)
        return [ImageBatch(pixels, right, self.head) for pixels, right in pieces]


class ImageBatches:
    """Prepares batches of images; a derived class has ``device``, ``_on_device(head)``, ``_preprocess``, which converts
    stored images on the device to the network's input, and ``_side``, that of a random crop in pixels."""

    device: torch.device
    _preprocess: Callable[[torch.Tensor], torch.Tensor]
    _side: int

    def _on_device(self, head: Any) -> Any:
        raise NotImplementedError

    def prepare(
        self,
        examples: ImageExamples,
        changes: Mapping[str, Any] | str | None = None,
        generator: torch.Generator | None = None,
    ) -> ImageBatch:
        """See `Model.prepare`; ``changes`` is "crop" (open_clip's training transform) or the arguments of `augment`."""
        shape, pinned = (len(examples), *examples.images.shape[1:]), self.device.type == "cuda"
        dtype = torch.uint8 if examples.images.dtype == np.uint8 else torch.float32
        images = torch.empty(shape, dtype=dtype, pin_memory=pinned)  # torch reuses pinned memory
        examples.read_into(images.numpy())
        if changes is None:
            pixels = self.pixels(images)
        elif generator is None:
            raise ValueError("random changes need a generator")
        elif isinstance(changes, str):
            pixels = self._cropped(images, examples.sizes, generator)
        else:
            pixels = augment(self.pixels(images), generator, **changes)
        right = cuda.upload(torch.from_numpy(np.array(examples.labels)), self.device)
        return ImageBatch(pixels, right, self._on_device(examples.head))

    def _cropped(
        self, images: torch.Tensor, sizes: NDArray[np.int32] | None, generator: torch.Generator
    ) -> torch.Tensor:
        height, width = images.shape[1:3]
        originals = torch.tensor([[height, width]]).expand(len(images), 2) if sizes is None else torch.from_numpy(sizes)
        boxes = cuda.upload(random_crops(originals, generator), self.device)
        return self.pixels(crop_and_resize(cuda.upload(images, self.device), boxes, self._side))

    def pixels(self, images: NDArray[Any] | torch.Tensor) -> torch.Tensor:
        """Convert stored images [N, ...] to the network's input, float32 [N, 3, H, W] on ``device``."""
        return self._preprocess(cuda.upload(torch.as_tensor(images), self.device))

    def batches(self, examples: ImageExamples, batch_size: int) -> Iterator[ImageBatch]:
        for start in range(0, len(examples), batch_size):
            yield self.prepare(examples[start : start + batch_size])
