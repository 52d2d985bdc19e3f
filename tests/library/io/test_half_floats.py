"""Conversions between stored floats and float32 give the same bits as torch."""

import numpy as np
import pytest
import torch

from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.float_bytes import narrowed, rounded, widened

TYPES = {"F16": torch.float16, "BF16": torch.bfloat16}
ALL = np.arange(1 << 16, dtype=np.uint16)
LOWER = [0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF, None]
"""Lower halves of float32 values around the rounding boundaries; None means random ones."""


def as_torch(bits, dtype):
    return torch.from_numpy(bits.view(np.int16)).view(dtype)


def all_upper(lower):
    """Every upper half of a float32, with one lower half, or random ones."""
    halves = np.random.default_rng(0).integers(0, 1 << 16, 1 << 16, dtype=np.uint32) if lower is None else lower
    return (ALL.astype(np.uint32) << 16 | np.uint32(0) + halves).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_pattern_is_widened_exactly(dtype):
    """Weights would differ from those in the file, including denormals, infinities and NaN."""
    found = widened(ALL.view(np.uint8), dtype)
    expected = as_torch(ALL, TYPES[dtype]).float().numpy()
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


@pytest.mark.parametrize("lower", LOWER)
@pytest.mark.parametrize("dtype", TYPES)
def test_narrowing_rounds_to_nearest_even(dtype, lower):
    """A written model would differ from torch's in the last bit."""
    values = all_upper(lower)
    out = rounded(values, dtype).view(np.uint16)
    expected = torch.from_numpy(values).to(TYPES[dtype])
    nan = np.isnan(values)
    np.testing.assert_array_equal(as_torch(out, TYPES[dtype]).isnan().numpy(), nan)
    np.testing.assert_array_equal(out[~nan], expected.view(torch.int16).numpy().view(np.uint16)[~nan])


@pytest.mark.parametrize("dtype", TYPES)
def test_values_that_would_become_infinite_are_refused(dtype):
    """A model would be written with infinite weights, or a correct one refused."""
    largest = torch.finfo(TYPES[dtype]).max
    values = np.array([largest, -largest, 0, 1e-30], np.float32)
    np.testing.assert_array_equal(widened(narrowed(values, dtype, "x"), dtype)[:2], values[:2])
    middle = np.float32(65520.0) if dtype == "F16" else np.array([0x7F7F8000], np.uint32).view(np.float32)[0]
    narrowed(np.nextafter(np.array([middle]), np.float32(0), dtype=np.float32), dtype, "x")
    for value, expected in ((-middle, dtype), (np.nan, "NaN")):
        with pytest.raises(TallmasksError, match=f"x .*{expected}"):
            narrowed(np.array([0, value], np.float32), dtype, "x")
