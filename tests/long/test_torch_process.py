"""Torch, asked for this machine's GPUs in a process of its own."""

import pytest
import torch

from tallmasks.models import cuda


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without a GPU is asked")
def test_torch_is_asked_in_a_process_of_its_own() -> None:
    """The real question would end in a traceback, or be answered by the process that is to be forked."""
    seen = cuda.elsewhere("GPU-7")
    assert (seen.devices, seen.visible, seen.torch) == ((), "GPU-7", str(torch.__version__))
    assert cuda.refusal(seen)
