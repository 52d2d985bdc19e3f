"""Our kernels and a plain torch statement of the same equations, for benchmarks/streaming.py.

Both compute the sum, the disjoint sum of TIES from given thresholds, five masks of either, the agreement of the middle
masks, and the consensus of two; ours also packs the masks.  Ours does it twice: each on the whole vectors, as the
workflow's jobs do, and all in one walk over pieces that stay in a core's cache, as the commands do.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tallmasks.io.tensor_files import Layout
from tallmasks.masks.consensus import keep_agreed
from tallmasks.methods import TensorPiece, get_merge
from tallmasks.methods.rows.task_arithmetic import sum_merge
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector, trim_threshold

LAMBDAS = (0.2, 0.3, 0.4, 0.5, 0.6)


class Ours:
    """The kernels, each writing into its own array."""

    def __init__(self, vectors: np.ndarray) -> None:
        size = vectors.shape[1]
        self.rows = list(vectors)
        self.thresholds = self.trim()
        self.total, self.ties = np.empty(size, np.float32), np.empty(size, np.float32)
        self.planes = [np.empty((3, -(-size // 8)), np.uint8) for _ in self.rows]
        self.ties_planes = [np.empty_like(planes) for planes in self.planes]
        self.counts = np.empty(size, np.uint8)
        self.kept = np.empty(size, np.float32)

    def trim(self) -> list[np.float32]:
        return [trim_threshold(row, 0.2) for row in self.rows]

    def merge(self, name: str, out: np.ndarray) -> None:
        layout = Layout(("",), (out.shape,))
        limits = zip(self.rows, self.thresholds, strict=True)
        get_merge(name)([TaskVector(row, layout, {0.2: limit}) for row, limit in limits], out)

    def work(self) -> dict[str, Callable[[], Any]]:
        return {
            "trim thresholds": self.trim,
            "sum": lambda: self.merge("sum", self.total),
            "TIES": lambda: self.merge("ties_sum", self.ties),
            "five masks, TIES": lambda: kernels.pack_levels(self.rows, self.ties, LAMBDAS, self.ties_planes),
            "five masks, sum": lambda: kernels.pack_levels(self.rows, self.total, LAMBDAS, self.planes),
            "agreement": lambda: kernels.count_agreement(self.planes, [2] * len(self.planes), self.counts),
            "consensus": lambda: keep_agreed(self.total, self.counts, 2),
        }

    def walk(self) -> None:
        """All of it but the thresholds, piece by piece."""
        majority = kernels.majority_sign(self.rows, self.thresholds)

        def work(part: slice) -> None:
            rows, total, ties = [row[part] for row in self.rows], self.total[part], self.ties[part]
            total[:] = sum_merge(rows, TensorPiece("", part.start, part.stop), None)
            kernels.merge_ties(rows, self.thresholds, majority, ties, mean=False)
            packed = slice(part.start // 8, -(-part.stop // 8))
            of_sum = [planes[:, packed] for planes in self.planes]
            kernels.pack_levels(rows, total, LAMBDAS, of_sum)
            kernels.pack_levels(rows, ties, LAMBDAS, [planes[:, packed] for planes in self.ties_planes])
            kernels.count_agreement(of_sum, [2] * len(rows), self.counts[part])
            self.kept[part] = keep_agreed(total, self.counts[part], 2)

        kernels.in_pieces(self.total.size, work)


class Plain:
    """The equations as one would write them in torch."""

    def __init__(self, vectors: np.ndarray, thresholds: list[np.float32]) -> None:
        self.vectors = torch.from_numpy(vectors)
        self.thresholds = torch.tensor(thresholds)[:, None]
        self.n = vectors.shape[1] - int(0.2 * vectors.shape[1])

    def trim(self) -> None:
        for vector in self.vectors:
            vector.abs().kthvalue(self.n)

    def sum(self) -> None:
        self.total = self.vectors.sum(0)

    def merge(self) -> None:
        trimmed = self.vectors * (self.vectors.abs() >= self.thresholds)
        sign = trimmed.sum(0).sign()
        sign[sign == 0] = sign.sum().sign()
        self.ties = (trimmed * (trimmed.sign() == sign)).sum(0)

    def masks(self, merged: torch.Tensor) -> None:
        self.held = [self.vectors.abs() > value * (merged - self.vectors).abs() for value in LAMBDAS]

    def count(self) -> None:
        self.counts = self.held[2].sum(0)

    def work(self) -> dict[str, Callable[[], Any]]:
        return {
            "trim thresholds": self.trim,
            "sum": self.sum,
            "TIES": self.merge,
            "five masks, TIES": lambda: self.masks(self.ties),
            "five masks, sum": lambda: self.masks(self.total),
            "agreement": self.count,
            "consensus": lambda: self.total * (self.counts >= 2),
        }
