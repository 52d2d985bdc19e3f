"""Image examples: images, labels and the task's head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import open_tensors


@dataclass(frozen=True)
class ImageExamples:
    """Examples of one task; implements `reproduction.models.families.Examples`.

    Attributes:
        images: uint8 [M, H, W, 3], or the network's input, float32 [M, 3, H, W]; can be memory-mapped.
        labels: int64 [N].
        head: of the task; of CLIP float32 [C, D], of classifiers the tensors by name, none before it is trained.
        sizes: int32 [N, 2], height and width of each image before it was resized to a square; None if it was not.
        rows: int64 [N], the index of each example in ``images``; None for all images.
    """

    images: NDArray[Any]
    labels: NDArray[np.int64]
    head: Any
    sizes: NDArray[np.int32] | None = None
    rows: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, some: Any) -> ImageExamples:
        rows = np.arange(len(self.images)) if self.rows is None else self.rows
        sizes = None if self.sizes is None else self.sizes[some]
        return replace(self, labels=self.labels[some], sizes=sizes, rows=rows[some])

    def read_into(self, pixels: NDArray[Any]) -> None:
        """Copy the examples' images to `pixels`, [N, ...]."""
        rows = np.arange(len(self.images)) if self.rows is None else self.rows
        np.take(self.images, rows, axis=0, out=pixels, mode="clip")  # other modes copy twice


def open_examples(path: Path, head: Any) -> ImageExamples:
    tensors = open_tensors(path)
    sizes = tensors.read("sizes") if "sizes" in tensors.names else None
    return ImageExamples(tensors.view("images"), tensors.read("labels"), head, sizes)
