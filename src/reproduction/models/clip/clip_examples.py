"""Image examples of CLIP: images, labels and the task's zero-shot head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import load_state, open_tensors


@dataclass(frozen=True)
class ClipExamples:
    """Examples of one task; implements `reproduction.models.families.Examples`.

    Attributes:
        images: uint8 [M, H, W, 3]; can be memory-mapped.
        labels: int64 [N].
        head: float32 [C, D], the zero-shot head.
        sizes: int32 [N, 2], height and width of each image before it was resized to a square; None if it was not.
        rows: int64 [N], the index of each example in ``images``; None for all images.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    head: NDArray[np.float32]
    sizes: NDArray[np.int32] | None = None
    rows: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, some: Any) -> ClipExamples:
        rows = np.arange(len(self.images)) if self.rows is None else self.rows
        sizes = None if self.sizes is None else self.sizes[some]
        return replace(self, labels=self.labels[some], sizes=sizes, rows=rows[some])

    def read_into(self, pixels: NDArray[np.uint8]) -> None:
        """Copy the examples' images to `pixels`, uint8 [N, H, W, 3]."""
        rows = np.arange(len(self.images)) if self.rows is None else self.rows
        np.take(self.images, rows, axis=0, out=pixels, mode="clip")  # other modes copy twice


def open_examples(path: Path, head: Path) -> ClipExamples:
    tensors = open_tensors(path)
    sizes = tensors.read("sizes") if "sizes" in tensors.names else None
    return ClipExamples(tensors.view("images"), tensors.read("labels"), load_state(head)["head"], sizes)
