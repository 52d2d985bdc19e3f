"""Pretrained files on their way into a network."""

import pytest
import torch

from tallmasks.models.pretrained_files import is_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1000,)])
@pytest.mark.parametrize("odd", [None, float("nan"), float("inf"), float("-inf")])
def test_finite_is_what_torch_says(dtype: torch.dtype, shape: tuple[int, ...], odd: float | None) -> None:
    """A diverged checkpoint would be merged, or a good one refused."""
    tensor = torch.arange(torch.Size(shape).numel()).view(shape).to(dtype) - 7
    if odd is not None and tensor.numel() and tensor.is_floating_point():
        tensor.view(-1)[tensor.numel() // 2] = odd
    assert is_finite(tensor) == bool(torch.isfinite(tensor).all())
    assert is_finite(tensor.T if tensor.dim() == 2 else tensor) == bool(torch.isfinite(tensor).all())
