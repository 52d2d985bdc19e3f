"""-1, 0 or 1 for each value and one magnitude: five values in a byte, 1.6 bits a value.

Two planes of bits would take 2.  A bit for each value and one for each that is not 0 would take 1.4 where 40 % are
not, but how many that are follows from the values, so that neither the file's size nor the place of a value in it would
be known from the shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.codings.whole import ONE_SCALE, Whole, size_of
from tallmasks.store.tensor_files import TensorSpec

_IN_A_BYTE = 5
_WEIGHTS = (3 ** np.arange(_IN_A_BYTE)).astype(np.uint8)
_MOST = 3**_IN_A_BYTE


@dataclass(frozen=True)
class Ternary(Whole):
    """``.ternary`` uint8 [ceil(n / 5)]: digit i, from the lowest, of byte j to base 3 is 1 and the sign of value
    5 j + i, 1 behind the last value; ``.scale`` float32 [1].

    A method's function gives (the signs -1, 0 and 1 as floats, [shape]; the magnitude).
    """

    kind: ClassVar[str] = "ternary"

    @property
    def specs(self) -> dict[str, TensorSpec]:
        packed = TensorSpec(np.dtype(np.uint8), (-(-size_of(self.shape) // _IN_A_BYTE),))
        return {".ternary": packed, ".scale": ONE_SCALE}

    def values(self, content: Any) -> Any:
        signs, scale = content
        return signs * scale

    def pack(self, content: Any) -> dict[str, NDArray]:
        signs, scale = content
        digits = (signs.reshape(-1) + 1).astype(np.uint8)
        digits = np.pad(digits, (0, -digits.size % _IN_A_BYTE), constant_values=1).reshape(-1, _IN_A_BYTE)
        return {".ternary": digits @ _WEIGHTS, ".scale": np.array([scale], np.float32)}

    def piece(self, parts: Mapping[str, NDArray], start: int, stop: int) -> NDArray[np.float32]:
        first, scale = start // _IN_A_BYTE, parts[".scale"][0]
        digits = _digits()[parts[".ternary"][first : -(-stop // _IN_A_BYTE)]].reshape(-1)
        before = start - first * _IN_A_BYTE
        return np.array([-scale, 0, scale], np.float32)[digits[before : before + stop - start]]

    def problem(self, parts: Mapping[str, NDArray]) -> str | None:
        packed, filled = parts[".ternary"], size_of(self.shape) % _IN_A_BYTE
        if packed.size and int(packed.max()) >= _MOST:
            return f"a byte of {int(packed.max())}, where five digits to base 3 give at most {_MOST - 1}"
        beyond = filled and (_digits()[int(packed[-1])][filled:] != 1).any()
        return "digits behind its last value" if beyond else None


@cache
def _digits() -> NDArray[np.uint8]:
    """The five digits of every byte, uint8 [256, 5]; those above 242 are in no file."""
    return (np.arange(256)[:, None] // 3 ** np.arange(_IN_A_BYTE) % 3).astype(np.uint8)
