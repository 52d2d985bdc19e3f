"""Pretrained files on their way into a network."""

import itertools

import pytest
import torch

from tallmasks.models.pretrained_files import is_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_finite_is_what_torch_says(dtype: torch.dtype) -> None:
    """A diverged checkpoint would be merged, or a good one refused."""
    for shape, odd in itertools.product([(), (0,), (3, 5), (1000,)], [None, *map(float, ("nan", "inf", "-inf"))]):
        tensor = torch.arange(torch.Size(shape).numel()).view(shape).to(dtype) - 7
        if odd is not None and tensor.numel() and tensor.is_floating_point():
            tensor.view(-1)[tensor.numel() // 2] = odd
        assert is_finite(tensor) == is_finite(tensor.mT if len(shape) == 2 else tensor)
        assert is_finite(tensor) == bool(torch.isfinite(tensor).all())
