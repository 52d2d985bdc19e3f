"""tau_MTL as stored in a bundle: encoding, decoding, and the masked sum with theta_0, on the CPU.

A task's update is ``scale * tau`` where its bit is set and +0.0 elsewhere, whatever the signs of scale and tau. Weights
are ``round(float32(theta_0) + update)``, so a theta_0 of -0.0 whose bit is 0 becomes +0.0 (IEEE 754).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.codings import Coding, Levels
from tallmasks.io.dtypes import FLOATS, OF_BUNDLES
from tallmasks.io.tensor_files import NewTensors
from tallmasks.vectors.checkpoints.float_bytes import narrowed, widened
from tallmasks.vectors.kernels import read_only
from tallmasks.vectors.levels import normal_levels, rounded_rows

PIECE = 1 << 20
"""Values that a thread processes at once; a multiple of 8."""
Raw = NDArray[np.uint8]


class PackedTau(NamedTuple):
    """A flattened tensor of tau_MTL as stored: the bytes of values of a dtype, under "", or the arrays of a coding."""

    parts: Mapping[str, NDArray]
    form: str | Coding

    def piece(self, start: int, stop: int) -> NDArray[np.float32]:
        if isinstance(self.form, Coding):
            return self.form.piece(self.parts, start, stop)
        width = FLOATS[self.form]
        return widened(self.parts[""][start * width : stop * width], self.form)

    def add(self, theta: NDArray, start: int, bits: Raw, scale: float, out: NDArray[np.float32]) -> None:
        """Writes theta + update to ``out``, float32 [n], from value ``start`` (a multiple of 8) of the tensor on.
        ``bits``: the mask of the whole tensor, uint8 [ceil(P / 8)]."""
        from tallmasks.vectors import loops  # imports numba

        stop, words = start + out.size, np.zeros(-(-out.size // 32), np.uint32)
        words.view(np.uint8)[: -(-out.size // 8)] = bits[start // 8 : -(-stop // 8)]
        if isinstance(self.form, Levels):
            self.form.add_masked(self.parts, theta, start, words, scale, out)
            return
        half = self.form == "BF16"
        tau = self.parts[""][2 * start : 2 * stop].view(np.uint16) if half else self.piece(start, stop).view(np.int32)
        loops.add_masked(read_only(theta), read_only(tau), 16 * half, words, np.float32(scale), out)


def pieces(size: int, unit: int = 8) -> list[tuple[int, int]]:
    """Start and stop of every piece of a tensor. Pieces start at multiples of ``unit``."""
    step = max(PIECE // unit, 1) * unit
    return [(start, min(start + step, size)) for start in range(0, size, step)]


@dataclass(frozen=True)
class Merged:
    """merged.safetensors being written. ``codings``: of the tensors that are not stored as values of ``dtype``; only
    `Levels`, which can be written in pieces."""

    dtype: str
    codings: Mapping[str, Coding]
    new: NewTensors

    def unit(self, name: str) -> int:
        """Pieces of this tensor start at multiples of this many values."""
        coding = self.codings.get(name)
        return coding.unit if isinstance(coding, Levels) else 8

    def write(self, name: str, start: int, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Writes values of one flattened tensor from ``start`` on. Returns the values as stored, except that they are
        not rounded to the dtype. Raises TallmasksError, naming the tensor, for NaN, infinity or a value too large for
        the dtype."""
        title, tensors = f"tensor {name} of the merged vector", self.new.tensors
        if not isinstance(coding := self.codings.get(name), Levels):
            part = tensors[name].reshape(-1)[start : start + values.size]
            part.view(np.uint8)[...] = narrowed(values, OF_BUNDLES[self.dtype], title)
            return values
        piece = replace(coding, shape=values.shape)
        content = rounded_rows(values, coding.group, normal_levels(coding.bits))
        narrowed(content.scales, "F32", title)
        parts, first = piece.pack(content), start // coding.group
        tensors[name + ".index"][:, start // 8 :][:, : parts[".index"].shape[1]] = parts[".index"]
        tensors[name + ".levels"][...] = parts[".levels"]
        tensors[name + ".scale"][first : first + len(content.scales)] = parts[".scale"]
        return piece.values(content)
