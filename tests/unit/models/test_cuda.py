"""Which GPUs there are, and whether a job can compute on them; NVIDIA's tools and torch's answers are replaced."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from gpus import LISTED, fake_nvml
from tallmasks.models import cuda
from tallmasks.models.cuda import Device, Seen, Sight
from tallmasks.store.errors import TallmasksError

KERNELS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "compute_120")
H100 = Seen("NVIDIA H100", "GPU-1", (9, 0))
GOOD = Sight("2.15.0+cu132", "13.2", KERNELS, "13.2", (H100,))
A100 = "NVIDIA A100-SXM4-40GB"
DIVIDED = {"GPU-aa11": (A100, ["MIG-bb22", "MIG-cc33"]), "GPU-dd44": (A100, [])}


def lists(monkeypatch: pytest.MonkeyPatch, folder: Path, gpus: dict[str, tuple[str, list[str]]] | None = None) -> None:
    """Have NVIDIA's library list other GPUs than this machine's."""
    fake = ModuleType("pynvml")
    exec((fake_nvml(folder, gpus) / "pynvml.py").read_text(), vars(fake))
    monkeypatch.setitem(sys.modules, "pynvml", fake)


@pytest.mark.parametrize(
    ("change", "why", "remedy"),
    [
        ({"devices": (), "driver": None}, "no NVIDIA driver found", "install one"),
        ({"devices": (), "driver": "12.4"}, "knows CUDA up to 12.4, and torch 2.15.0.cu132 asks for 13.2", "newer"),
        ({"devices": (), "driver": "13.2", "visible": "7"}, "no device .CUDA_VISIBLE_DEVICES is '7'", "nvidia-smi"),
        ({"devices": (), "error": "CUDA unknown error"}, "no device: CUDA unknown error", "nvidia-smi"),
        ({"devices": (dataclasses.replace(H100, name="Tesla V100", capability=(7, 0)),)}, "V100 .sm_70", "TALLMASKS_"),
        ({"devices": (), "built_for": None, "driver": None}, "build for CPUs", "make install"),
    ],
)
def test_each_reason_is_told_from_the_others(change: dict[str, object], why: str, remedy: str) -> None:
    """A user would learn that there is "no GPU" and look at the wrong one of driver, torch and device."""
    assert cuda.refusal(GOOD) is None
    found = cuda.refusal(dataclasses.replace(GOOD, **change))  # type: ignore[arg-type]
    assert found is not None and "\n" not in found and "gpu: 0" in found and remedy in found
    assert re.search(why, found)


@pytest.mark.parametrize(
    ("capability", "kernels", "runs"),
    [
        ((8, 9), ("sm_80",), True),  # the same generation, newer
        ((8, 0), ("sm_86",), False),  # the same generation, older
        ((9, 0), ("sm_80", "sm_86"), False),  # another generation, no code to translate
        ((12, 0), ("sm_90", "compute_90"), True),  # the driver translates
        ((7, 0), ("compute_75",), False),
        ((9, 0), ("sm_90a",), True),
        ((10, 3), ("sm_100a",), False),  # code for one device alone
        ((10, 3), ("sm_100f",), True),
    ],
)
def test_kernels_fit_as_cuda_has_it(capability: tuple[int, int], kernels: tuple[str, ...], runs: bool) -> None:
    """A job would be refused on a GPU that works, or end in "no kernel image" after the downloads."""
    seen = dataclasses.replace(GOOD, devices=(dataclasses.replace(H100, capability=capability),), kernels=kernels)
    assert (cuda.refusal(seen) is None) == runs


def test_the_gpu_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job with a lease would compute on the CPU for weeks, and one without would take somebody's GPU."""
    monkeypatch.setattr(cuda, "sight", lambda: GOOD)
    assert [str(cuda.choose(wanted)) for wanted in ("cuda", None, "cpu")] == ["cuda", "cuda", "cpu"]  # type: ignore[arg-type]
    monkeypatch.setattr(cuda, "sight", lambda: dataclasses.replace(GOOD, devices=(), driver=None))
    assert [str(cuda.choose(wanted)) for wanted in (None, "cpu")] == ["cpu", "cpu"]  # type: ignore[arg-type]
    with pytest.raises(TallmasksError, match="to compute on a GPU, and cannot: no NVIDIA driver"):
        cuda.choose("cuda")


def test_a_divided_gpu_is_leased_part_by_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Jobs would share one MIG device while the others are idle, or take the GPU that CUDA does not give."""
    lists(monkeypatch, tmp_path, DIVIDED)
    assert [device.uuid for device in cuda.usable({})] == ["MIG-bb22", "MIG-cc33", "GPU-dd44"]
    assert cuda.usable({"TALLMASKS_GPUS": "0"}) == cuda.usable({"TALLMASKS_GPUS": "GPU-aa11"}) == cuda.listed()[:2]
    assert [device.uuid for device in cuda.usable({"TALLMASKS_GPUS": "MIG-cc33,1"})] == ["MIG-cc33", "GPU-dd44"]


@pytest.mark.parametrize("variable", ["TALLMASKS_GPUS", "CUDA_VISIBLE_DEVICES"])
def test_numbers_and_uuids_name_the_same_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str) -> None:
    """Two Snakemakes, one told `1` and one told a UUID, would compute on one GPU at the same time."""
    lists(monkeypatch, tmp_path)
    for names in ("1", LISTED["1"], LISTED["1"][:12], f" {LISTED['1']},1 "):
        assert [device.uuid for device in cuda.usable({variable: names})] == [LISTED["1"]]
    with pytest.raises(TallmasksError, match=f"{variable}: '9' names no GPU of this machine; there is 0 .GPU-0"):
        cuda.usable({variable: "9"})
    with pytest.raises(TallmasksError, match="'GPU-' names 4 GPUs"):
        cuda.usable({variable: "GPU-"})
    assert cuda.usable({variable: ""}) == []


def test_cudas_own_numbers_count_by_speed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a machine with unlike GPUs, CUDA_VISIBLE_DEVICES=0 would lease the one for the screen."""
    lists(monkeypatch, tmp_path, {"GPU-slow": ("NVIDIA T400", []), "GPU-fast": ("NVIDIA H100", [])})
    monkeypatch.setattr(cuda, "driver", lambda: "13.2")
    order = (Seen("NVIDIA H100", "GPU-fast", (9, 0)), Seen("NVIDIA T400", "GPU-slow", (7, 5)))
    monkeypatch.setattr(cuda, "elsewhere", lambda visible=None: dataclasses.replace(GOOD, devices=order))
    assert [device.uuid for device in cuda.usable({"CUDA_VISIBLE_DEVICES": "0"})] == ["GPU-fast"]
    assert [device.uuid for device in cuda.usable({"TALLMASKS_GPUS": "0"})] == ["GPU-slow"]
    by_place = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [device.uuid for device in cuda.usable(by_place)] == ["GPU-slow"]


def test_without_nvidias_library_torch_lists_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a container without NVIDIA's tools no job would find its GPU."""
    lists(monkeypatch, tmp_path)
    fake = sys.modules["pynvml"]
    monkeypatch.setattr(fake, "nvmlInit", lambda: (_ for _ in ()).throw(fake.NVMLError()))
    monkeypatch.setattr(cuda, "driver", lambda: "13.2")
    monkeypatch.setattr(cuda, "elsewhere", lambda visible=None: GOOD)
    assert cuda.listed() == [Device(0, "NVIDIA H100", "GPU-1", "GPU-1")]


def test_a_broken_torch_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run would end in the traceback of another process."""
    answer = subprocess.CompletedProcess([], 1, "", "Traceback\nImportError: libtorch.so: cannot open\n")
    monkeypatch.setattr(cuda.subprocess, "run", lambda *arguments, **more: answer)
    with pytest.raises(TallmasksError, match=r"asked for GPUs: ImportError: libtorch\.so: cannot open; `make install`"):
        cuda.elsewhere()


def test_memory_that_torch_keeps_unused_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation would hold one weight set at a time, and read the images eleven times."""
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 4000))
    assert cuda.free_bytes(torch.device("cuda")) == 1300
