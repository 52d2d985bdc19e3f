"""Tensor dtypes: their names in safetensors, torch and NumPy, their width, and which are floats."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch


DTYPE_ALIASES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


class Dtype(NamedTuple):
    torch: str
    numpy: np.dtype  # for dtypes that NumPy lacks, an unsigned integer of the same width

    @property
    def width(self) -> int:
        return self.numpy.itemsize


# Dtypes of whole bytes by safetensors code.
DTYPES = {
    code: Dtype(name, np.dtype(stored))
    for code, name, stored in (
        ("F64", "float64", "<f8"), ("F32", "float32", "<f4"), ("F16", "float16", "<f2"), ("BF16", "bfloat16", "<u2"),
        ("I64", "int64", "<i8"), ("I32", "int32", "<i4"), ("I16", "int16", "<i2"), ("I8", "int8", "i1"),
        ("U64", "uint64", "<u8"), ("U32", "uint32", "<u4"), ("U16", "uint16", "<u2"), ("U8", "uint8", "u1"),
        ("BOOL", "bool", "?"), ("C64", "complex64", "<c8"), ("F8_E4M3", "float8_e4m3fn", "u1"),
        ("F8_E5M2", "float8_e5m2", "u1"), ("F8_E4M3FNUZ", "float8_e4m3fnuz", "u1"),
        ("F8_E5M2FNUZ", "float8_e5m2fnuz", "u1"), ("F8_E8M0", "float8_e8m0fnu", "u1"),
    )
}  # fmt: skip
# The dtypes of weights, with their width in bytes.
FLOATS = {code: DTYPES[code].width for code in ("F16", "BF16", "F32", "F64")}
# Their names in torch, which `merge --dtype` accepts.
MERGED_DTYPES = [DTYPES[code].torch for code in FLOATS]
# The largest relative error of rounding to a dtype of weights; F64 is read as float32.
ROUNDOFF = {"F16": 2**-11, "BF16": 2**-8, "F32": 2**-24, "F64": 2**-24}


def code_of(name: str | np.dtype) -> str:
    """The safetensors code of a torch or NumPy dtype name; other names, and codes, are returned unchanged."""
    return _CODES.get(str(name), str(name))


def bits_of(code: str) -> int:
    """Bits per value of any safetensors dtype, also of those that are not in `DTYPES`, such as F4."""
    return 8 * DTYPES[code].width if code in DTYPES else int(re.findall(r"\d+", code)[0])


def nbytes_of(code: str, values: int) -> int:
    """The bytes of this many values of any safetensors dtype."""
    return values * bits_of(code) // 8


_CODES = {dtype.torch: code for code, dtype in DTYPES.items()}


@cache
def torch_dtypes() -> dict[str, torch.dtype]:
    """The torch dtype of every code that the installed torch has."""
    import torch

    return {code: getattr(torch, dtype.torch) for code, dtype in DTYPES.items() if hasattr(torch, dtype.torch)}


@cache
def torch_codes() -> dict[torch.dtype, str]:
    return {dtype: code for code, dtype in torch_dtypes().items()}
