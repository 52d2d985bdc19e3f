"""Listing GPUs and choosing a device; the answers of NVIDIA's library and torch are made up."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from gpus import LISTED, fake_nvml
from reproduction.models import cuda
from tallmasks.errors import TallmasksError

GPUS = list(LISTED.values())


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, GPUS),
        ("", []),
        ("2,0", [GPUS[2], GPUS[0]]),
        (f" {GPUS[1]},1,{GPUS[1][:12]} ", GPUS[1:2]),
        ("MIG-5,7", ["MIG-5", "7"]),
    ],
)
def test_a_device_has_one_name(
    visible: str | None, uuids: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Snakemake runs, one given `1` and the other that GPU's UUID, would use the same GPU at the same time."""
    monkeypatch.syspath_prepend(fake_nvml(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert cuda.usable() == uuids


def test_the_gpu_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that leased a GPU would run on the CPU for weeks, or one without a lease would take someone's GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setattr(torch, "zeros", Mock())
    assert [str(cuda.choose(wanted)) for wanted in ("cuda", None, "cpu")] == ["cuda", "cuda", "cpu"]  # type: ignore[arg-type]
    monkeypatch.setattr(torch, "zeros", Mock(side_effect=RuntimeError("no kernel image\nCUDA errors may come later")))
    assert [str(cuda.choose(wanted)) for wanted in (None, "cpu")] == ["cpu", "cpu"]  # type: ignore[arg-type]
    with pytest.raises(TallmasksError, match=r"CUDA_VISIBLE_DEVICES .*'7'.*no kernel image.*gpu: 0") as no:
        cuda.choose("cuda")
    assert "\n" not in str(no.value)


def test_products_are_float32_unless_tf32_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores would differ between GPUs and CPUs in the fourth digit."""
    before = torch.are_deterministic_algorithms_enabled()
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)  # which is undone afterwards
    for tf32 in (True, False):
        cuda.make_repeatable(tf32=tf32)
        assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == tf32
    torch.use_deterministic_algorithms(before)


def test_jobs_on_one_gpu_take_no_memory_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation would fill a GPU with weight sets, and training on the same GPU would run out of memory."""
    limit = Mock()
    monkeypatch.setattr(torch, "zeros", Mock())
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limit)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3000, 4000))
    monkeypatch.setenv(cuda.JOBS_PER_GPU, "2")
    cuda.choose("cuda")
    limit.assert_called_once_with(0.475)
    assert cuda.free_bytes(torch.device("cuda")) == 1700
