"""How a bundle stores one tensor of a task's update, or of tau_MTL.

To add a coding, write a subclass of `Coding` and add it to `CODINGS`; its ``kind`` is its name in bundle.json.
"""

from __future__ import annotations

import functools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.dtypes import DTYPES, FLOATS
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.vectors.checkpoints.float_bytes import widened
from tallmasks.vectors.kernels import read_only

if TYPE_CHECKING:
    import torch

PIECE = 1 << 20
"""Values that a thread processes at once; a multiple of 8."""
Parts = Mapping[str, NDArray]
"""The stored arrays of one tensor, by name suffix."""
Words = NDArray[np.uint32]
SHORTEST_ROW = 16
"""A scale of 32 bits for fewer values would take more space than the values at 2 bits."""
ONE_SCALE = TensorInfo("F32", (1,))
_IN_A_BYTE = 5
_WEIGHTS = (3 ** np.arange(_IN_A_BYTE)).astype(np.uint8)
"""Place values of the five ternary digits in a byte."""
_SIGNS = (np.arange(256)[:, None] // _WEIGHTS % 3 - 1.0).astype(np.float32)
"""The five signs (-1, 0, 1) that each byte encodes, [256, 5]."""


@functools.cache
def _signs_on(device: torch.device) -> torch.Tensor:
    import torch

    return torch.from_numpy(_SIGNS).to(device)


def pieces(size: int, unit: int = 8) -> list[tuple[int, int]]:
    """Start and stop of every piece of a tensor. Pieces start at multiples of ``unit``."""
    step = max(PIECE // unit, 1) * unit
    return [(start, min(start + step, size)) for start in range(0, size, step)]


@dataclass(frozen=True)
class Coding(ABC):
    """How one tensor of a task's update is stored. ``shape``: that of the tensor."""

    kind: ClassVar[str]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def text(self) -> str:
        """The coding as written in bundle.json: its kind, plus each `:number` that the shape does not determine."""
        return self.kind

    @property
    def title(self) -> str:
        """The coding, for people."""
        return self.kind

    @property
    def unit(self) -> int:
        """Pieces that are written separately start at multiples of this many values."""
        return 8

    @property
    @abstractmethod
    def specs(self) -> dict[str, TensorInfo]:
        """The stored arrays, by name suffix."""

    @abstractmethod
    def values(self, content: Any) -> Any:
        """The update [shape] from the output of a method's function (array or GPU tensor), for evaluation."""

    @abstractmethod
    def pack(self, content: Any) -> dict[str, NDArray]:
        """The stored arrays, from the output of a method's function."""

    @abstractmethod
    def piece(self, parts: Parts, start: int, stop: int) -> NDArray[np.float32]:
        """Values start..stop of the flattened update, float32; the same bits for every division into pieces."""

    def add(self, parts: Parts, theta: NDArray, start: int, out: NDArray[np.float32]) -> None:
        """Writes theta + update to ``out``, float32 [n], from value ``start`` (a multiple of 8) of the tensor on."""
        np.add(theta, self.piece(parts, start, start + out.size), out=out)

    def add_masked(
        self, parts: Parts, theta: NDArray, start: int, mask: Words, factor: float, out: NDArray[np.float32]
    ) -> None:
        """Writes theta + factor * update to ``out`` where the mask's bit is 1, and theta + 0.0 elsewhere; bit i of word
        j, from the lowest, is for value 32 j + i. ``start``: a multiple of 8."""
        from tallmasks.vectors import loops  # imports numba

        update = self.piece(parts, start, start + out.size).view(np.int32)
        loops.add_masked(read_only(theta), read_only(update), 0, mask, np.float32(factor), out)

    @abstractmethod
    def update(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The flattened update on the device of ``parts``, float32 [n]; same bits as :meth:`piece`."""


@dataclass(frozen=True)
class Dense(Coding):
    """All values of the tensor, [shape], under its own name. ``dtype``: a code of safetensors; F32 but for tau_MTL."""

    kind: ClassVar[str] = "dense"
    dtype: str = field(default="F32", kw_only=True)

    @property
    def title(self) -> str:
        return DTYPES[self.dtype].torch

    @property
    def specs(self) -> dict[str, TensorInfo]:
        return {"": TensorInfo(self.dtype, self.shape)}

    def values(self, content: Any) -> Any:
        return content

    def pack(self, content: Any) -> dict[str, NDArray]:
        return {"": np.asarray(content, np.float32)}

    def piece(self, parts: Parts, start: int, stop: int) -> NDArray[np.float32]:
        return widened(self._raw(parts, start, stop), self.dtype)

    def add_masked(
        self, parts: Parts, theta: NDArray, start: int, mask: Words, factor: float, out: NDArray[np.float32]
    ) -> None:
        if self.dtype != "BF16":
            super().add_masked(parts, theta, start, mask, factor, out)
            return
        from tallmasks.vectors import loops

        update = self._raw(parts, start, start + out.size).view(np.uint16)
        loops.add_masked(read_only(theta), read_only(update), 16, mask, np.float32(factor), out)

    def _raw(self, parts: Parts, start: int, stop: int) -> NDArray[np.uint8]:
        width = FLOATS[self.dtype]
        return parts[""].reshape(-1).view(np.uint8)[start * width : stop * width]

    def update(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return parts[""].reshape(-1)


@dataclass(frozen=True)
class Signs(Coding):
    """``.signs`` uint8 [ceil(n / 8)]: bit i (lowest first) of byte j is 1 if value 8 j + i is negative, 0 in the
    padding; ``.scale`` float32 [1]. A method's function returns (is negative, bool [shape]; the magnitude)."""

    kind: ClassVar[str] = "signs"

    @property
    def specs(self) -> dict[str, TensorInfo]:
        return {".signs": TensorInfo("U8", (-(-self.size // 8),)), ".scale": ONE_SCALE}

    def values(self, content: Any) -> Any:
        negative, scale = content
        return (1.0 - 2.0 * negative) * scale

    def pack(self, content: Any) -> dict[str, NDArray]:
        negative, scale = content
        return {".signs": np.packbits(negative.reshape(-1), bitorder="little"), ".scale": np.array([scale], np.float32)}

    def piece(self, parts: Parts, start: int, stop: int) -> NDArray[np.float32]:
        first, scale = start // 8 * 8, parts[".scale"][0]
        bits = np.unpackbits(parts[".signs"][first // 8 : -(-stop // 8)], count=stop - first, bitorder="little")
        return np.array([scale, -scale], np.float32)[bits[start - first :]]

    def update(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        import torch

        from tallmasks.vectors.packed_bits import unpacked

        negative, scale = unpacked(parts[".signs"])[: self.size], parts[".scale"]
        return torch.where(negative, -scale, scale)


@dataclass(frozen=True)
class Ternary(Coding):
    """``.ternary`` uint8 [ceil(n / 5)]: base-3 digit i (lowest first) of byte j is 1 + the sign of value 5 j + i, 1 in
    the padding; ``.scale`` float32 [1].

    A method's function returns (signs -1, 0 and 1 as floats, [shape]; the magnitude).
    """

    kind: ClassVar[str] = "ternary"

    @property
    def specs(self) -> dict[str, TensorInfo]:
        return {".ternary": TensorInfo("U8", (-(-self.size // _IN_A_BYTE),)), ".scale": ONE_SCALE}

    def values(self, content: Any) -> Any:
        signs, scale = content
        return signs * scale

    def pack(self, content: Any) -> dict[str, NDArray]:
        signs, scale = content
        digits = (signs.reshape(-1) + 1).astype(np.uint8)
        digits = np.pad(digits, (0, -digits.size % _IN_A_BYTE), constant_values=1).reshape(-1, _IN_A_BYTE)
        return {".ternary": digits @ _WEIGHTS, ".scale": np.array([scale], np.float32)}

    def piece(self, parts: Parts, start: int, stop: int) -> NDArray[np.float32]:
        first, scale = start // _IN_A_BYTE, parts[".scale"][0]
        signs = np.take(_SIGNS, parts[".ternary"][first : -(-stop // _IN_A_BYTE)], axis=0).reshape(-1)
        before = start - first * _IN_A_BYTE
        return signs[before : before + stop - start] * scale

    def update(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        packed = parts[".ternary"]
        return _signs_on(packed.device)[packed.int()].flatten()[: self.size] * parts[".scale"]


@dataclass(frozen=True)
class Levels(Coding):
    """Values rounded to 2^bits levels, with a scale for each ``group`` of consecutive values, such as a matrix's row.

    ``.index`` uint8 [bits, ceil(n / 8)]: bit i (lowest first) of byte j of row k is bit k of the number of the level of
    value 8 j + i, 0 in the padding; ``.levels`` float32 [2^bits]; ``.scale`` float32 [n / group]. A value is its level
    times its group's scale. A method's function returns (numbers of levels, integers [shape]; levels; scales).
    """

    kind: ClassVar[str] = "levels"
    bits: int
    group: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8 or not self.group or self.size % self.group:
            raise ValueError(f"no {self.bits} bits and groups of {self.group} for a tensor of shape {self.shape}")

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.bits}:{self.group}"

    @property
    def title(self) -> str:
        return f"{self.bits} bits"

    @property
    def unit(self) -> int:
        return math.lcm(8, self.group)

    @property
    def specs(self) -> dict[str, TensorInfo]:
        return {
            ".index": TensorInfo("U8", (self.bits, -(-self.size // 8))),
            ".levels": TensorInfo("F32", (2**self.bits,)),
            ".scale": TensorInfo("F32", (self.size // self.group,)),
        }

    def values(self, content: Any) -> Any:
        index, levels, scales = content
        return (levels[index].reshape(-1, self.group) * scales[:, None]).reshape(self.shape)

    def pack(self, content: Any) -> dict[str, NDArray]:
        index, levels, scales = content
        planes = [np.packbits(index.reshape(-1) & 1 << bit, bitorder="little") for bit in range(self.bits)]
        return {".index": np.stack(planes), ".levels": levels, ".scale": scales}

    def piece(self, parts: Parts, start: int, stop: int) -> NDArray[np.float32]:
        first = start // 8 * 8
        nothing = np.full(stop - first, -0.0, np.float32)  # x + -0.0 is x for every x, including -0.0
        out = np.empty_like(nothing)
        self.add(parts, nothing, first, out)
        return out[start - first :]

    def add(self, parts: Parts, theta: NDArray, start: int, out: NDArray[np.float32]) -> None:
        self.add_masked(parts, theta, start, np.full(-(-out.size // 32), 2**32 - 1, np.uint32), 1.0, out)

    def add_masked(
        self, parts: Parts, theta: NDArray, start: int, mask: Words, factor: float, out: NDArray[np.float32]
    ) -> None:
        from tallmasks.vectors import loops

        first, last = start // 8, -(-(start + out.size) // 8)
        planes = np.zeros((self.bits, mask.size), np.uint32)
        planes.view(np.uint8)[:, : last - first] = parts[".index"][:, first:last]
        levels, scales = (read_only(np.ascontiguousarray(parts[name])) for name in (".levels", ".scale"))
        loops.add_levels(read_only(theta), planes, levels, scales, self.group, start, mask, np.float32(factor), out)

    def update(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        from tallmasks.vectors.packed_bits import unpacked

        index = sum(unpacked(plane)[: self.size].int() << bit for bit, plane in enumerate(parts[".index"]))
        return (parts[".levels"][index].view(-1, self.group) * parts[".scale"][:, None]).flatten()


@dataclass(frozen=True)
class LowRank(Coding):
    """``.left`` float32 [m, rank], ``.singular`` float32 [rank], descending, ``.right`` float32 [rank, n]: the matrix
    [m, n] left * diag(singular) * right.

    A method's function returns (left [m, rank], right [rank, n]) in float64: the singular vectors of the smaller side,
    and their product with the matrix. Methods are evaluated with left @ right in float64, rounded to float32. The
    stored float32 factors reproduce it within (rank + 4) 2^-24 of the sum of the products' magnitudes.
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
    def specs(self) -> dict[str, TensorInfo]:
        rows, columns = self.shape
        return {
            ".left": TensorInfo("F32", (rows, self.rank)),
            ".singular": TensorInfo("F32", (self.rank,)),
            ".right": TensorInfo("F32", (self.rank, columns)),
        }

    def values(self, content: Any) -> Any:
        left, right = content
        # a tall matrix is computed as its transpose, so that sums have the same order as for a wide one
        return (right.T @ left.T).T if self.shape[0] > self.shape[1] else left @ right

    def pack(self, content: Any) -> dict[str, NDArray]:
        left, right = content
        tall = self.shape[0] > self.shape[1]
        singular = np.linalg.norm(left, axis=0) if tall else np.linalg.norm(right, axis=1)
        lengths = np.where(singular > 0, singular, 1)
        order = np.argsort(-singular, kind="stable")
        left, right = (left / lengths, right) if tall else (left, right / lengths[:, None])
        parts = {".left": left[:, order], ".singular": singular[order], ".right": right[order]}
        return {name: np.ascontiguousarray(values, np.float32) for name, values in parts.items()}

    def piece(self, parts: Parts, start: int, stop: int) -> NDArray[np.float32]:
        from tallmasks.vectors import loops

        columns = self.shape[1]
        out = np.zeros(stop - start, np.float32)
        if self.rank and out.size:
            first, last = start // columns, -(-stop // columns)
            left = parts[".left"][first:last] * parts[".singular"]
            right = np.array(parts[".right"]).reshape(-1)
            loops.low_rank_product(left, right, np.float32(1), start - first * columns, columns, out)
        return out

    def update(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        left, right = parts[".left"] * parts[".singular"], parts[".right"]
        out = right.new_zeros(self.shape)
        for k in range(self.rank):  # rank by rank: a matrix product has no fixed order of summation
            out += left[:, k, None] * right[k]
        return out.flatten()


CODINGS: dict[str, Any] = {coding.kind: coding for coding in (Dense, Signs, Ternary, Levels, LowRank)}


def in_few_bits(shape: tuple[int, ...], bits: int) -> Coding:
    """The coding of a tensor whose values are rounded to 2^bits levels: `Levels` for matrices, `Dense` for vectors.

    A row is the shortest product of trailing axes of at least `SHORTEST_ROW`: a convolution's kernel of all inputs, and
    a row of each of several stacked matrices.
    """
    if sum(length > 1 for length in shape) < 2:
        return Dense(shape)
    rows = [math.prod(shape[axis:]) for axis in reversed(range(len(shape)))]
    return Levels(shape, bits, next((row for row in rows if row >= SHORTEST_ROW), rows[-1]))


def coding_of(text: str, shape: tuple[int, ...]) -> Coding | None:
    """Parses a coding's ``text`` for a tensor of this shape; None if it is invalid."""
    if not re.fullmatch(r"[a-z_]{1,40}(:(0|[1-9]\d{0,17}))*", text, re.ASCII):
        return None
    kind, *numbers = text.split(":")
    try:
        return CODINGS[kind](shape, *map(int, numbers))
    except (KeyError, TypeError, ValueError):  # also a superfluous or missing number, or one that the shape excludes
        return None
