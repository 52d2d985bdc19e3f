"""Some singular values of a matrix with their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.codings.whole import Whole
from tallmasks.store.tensor_files import TensorSpec


@dataclass(frozen=True)
class LowRank(Whole):
    """``.left`` float32 [m, rank], ``.singular`` float32 [rank], descending, ``.right`` float32 [rank, n]: a matrix
    [m, n] is left * diag(singular) * right.

    A method's function gives (left, [m, rank], and right, [rank, n], in float64): the smaller side's singular vectors,
    and their products with the matrix.  What is evaluated is left @ right in float64, rounded to float32.  What is
    stored gives it in float32: the factors rounded, the products of a value added up in order.  A value differs by at
    most (rank + 4) 2^-24 of the sum of their magnitudes.
    """

    kind: ClassVar[str] = "low_rank"
    rank: int

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or not 0 <= self.rank <= min(self.shape):
            raise ValueError(f"no rank {self.rank} for a tensor of shape {self.shape}")

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.rank}"

    @property
    def specs(self) -> dict[str, TensorSpec]:
        (rows, columns), single = self.shape, np.dtype("<f4")
        return {
            ".left": TensorSpec(single, (rows, self.rank)),
            ".singular": TensorSpec(single, (self.rank,)),
            ".right": TensorSpec(single, (self.rank, columns)),
        }

    def values(self, content: Any) -> Any:
        left, right = content
        # of a tall matrix as of its transpose, so that the order of the sums is that of the wide one
        return (right.T @ left.T).T if self.shape[0] > self.shape[1] else left @ right

    def pack(self, content: Any) -> dict[str, NDArray]:
        left, right = content
        tall = self.shape[0] > self.shape[1]
        singular = np.linalg.norm(left, axis=0) if tall else np.linalg.norm(right, axis=1)
        lengths = np.where(singular > 0, singular, 1)
        order = np.argsort(-singular, kind="stable")
        left, right = (left / lengths, right) if tall else (left, right / lengths[:, None])
        found = {".left": left[:, order], ".singular": singular[order], ".right": right[order]}
        return {name: np.ascontiguousarray(values, np.float32) for name, values in found.items()}

    def piece(self, parts: Mapping[str, NDArray], start: int, stop: int) -> NDArray[np.float32]:
        from tallmasks.store import half_floats

        columns = self.shape[1]
        out = np.zeros(stop - start, np.float32)
        if self.rank and out.size:
            first, last = start // columns, -(-stop // columns)
            left = parts[".left"][first:last] * parts[".singular"]
            right = np.array(parts[".right"]).reshape(-1)
            half_floats.low_rank(left, right, np.float32(1), start - first * columns, columns, out)
        return out
