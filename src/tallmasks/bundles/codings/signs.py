"""A sign for each value and one magnitude: 1 bit a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.codings.whole import ONE_SCALE, Whole, size_of
from tallmasks.store.tensor_files import TensorSpec


@dataclass(frozen=True)
class Signs(Whole):
    """``.signs`` uint8 [ceil(n / 8)]: bit i, from the lowest, of byte j is 1 where value 8 j + i is negative, 0 behind
    the last value; ``.scale`` float32 [1].

    A method's function gives (where it is negative, bool [shape]; the magnitude).
    """

    kind: ClassVar[str] = "signs"

    @property
    def specs(self) -> dict[str, TensorSpec]:
        return {".signs": TensorSpec(np.dtype(np.uint8), (-(-size_of(self.shape) // 8),)), ".scale": ONE_SCALE}

    def values(self, content: Any) -> Any:
        negative, scale = content
        return (1.0 - 2.0 * negative) * scale

    def pack(self, content: Any) -> dict[str, NDArray]:
        negative, scale = content
        return {
            ".signs": np.packbits(negative.reshape(-1), bitorder="little"),
            ".scale": np.array([scale], np.float32),
        }

    def piece(self, parts: Mapping[str, NDArray], start: int, stop: int) -> NDArray[np.float32]:
        first, scale = start // 8 * 8, parts[".scale"][0]
        bits = np.unpackbits(parts[".signs"][first // 8 : -(-stop // 8)], count=stop - first, bitorder="little")
        return np.array([scale, -scale], np.float32)[bits[start - first :]]

    def problem(self, parts: Mapping[str, NDArray]) -> str | None:
        beyond = size_of(self.shape) % 8
        return "bits behind its last value" if beyond and int(parts[".signs"][-1]) >> beyond else None
