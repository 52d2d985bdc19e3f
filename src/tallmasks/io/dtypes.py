"""The dtypes of tensors: what safetensors, torch and NumPy call them, how wide they are, and which are floats."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch


class Dtype(NamedTuple):
    """A dtype that safetensors has a code for."""

    torch: str
    numpy: np.dtype
    """How a value lies in memory: of what NumPy lacks, an unsigned integer with its bits."""

    @property
    def width(self) -> int:
        """Bytes of a value."""
        return self.numpy.itemsize


DTYPES = {
    code: Dtype(name, np.dtype(stored))
    for code, name, stored in (
        ("F64", "float64", "<f8"), ("F32", "float32", "<f4"), ("F16", "float16", "<f2"), ("BF16", "bfloat16", "<u2"),
        ("I64", "int64", "<i8"), ("I32", "int32", "<i4"), ("I16", "int16", "<i2"), ("I8", "int8", "i1"),
        ("U64", "uint64", "<u8"), ("U32", "uint32", "<u4"), ("U16", "uint16", "<u2"), ("U8", "uint8", "u1"),
        ("BOOL", "bool", "?"), ("C64", "complex64", "<c8"), ("F8_E4M3", "float8_e4m3fn", "u1"),
        ("F8_E5M2", "float8_e5m2", "u1"), ("F8_E4M3FNUZ", "float8_e4m3fnuz", "u1"),
        ("F8_E5M2FNUZ", "float8_e5m2fnuz", "u1"),
    )
}  # fmt: skip
"""By safetensors' code."""
FLOATS = {code: DTYPES[code].width for code in ("F16", "BF16", "F32", "F64")}
"""Bytes of a value, by the code of each dtype that weights have."""
ROUNDOFF = {"F16": 2**-11, "BF16": 2**-8, "F32": 2**-24, "F64": 2**-24}
"""The largest relative error of rounding to a dtype of weights; F64 is read as float32."""
OF_BUNDLES = {DTYPES[code].torch: code for code in ("F32", "BF16", "F16", "I8")}
"""The dtypes that a bundle's merged vector may have: safetensors' code by torch's name."""


def code_of(name: str | np.dtype) -> str:
    """safetensors' code of torch's or NumPy's name; a code itself, or a name without one, as it is."""
    return _CODES.get(str(name), str(name))


_CODES = {dtype.torch: code for code, dtype in DTYPES.items()}


@cache
def torch_dtypes() -> dict[str, torch.dtype]:
    """torch's dtype of every code that this release of torch has."""
    import torch

    return {code: getattr(torch, dtype.torch) for code, dtype in DTYPES.items() if hasattr(torch, dtype.torch)}


@cache
def torch_codes() -> dict[torch.dtype, str]:
    """safetensors' code of each of torch's dtypes."""
    return {dtype: code for code, dtype in torch_dtypes().items()}
