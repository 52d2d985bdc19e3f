"""The kind of machine at hand: what decides the last bits of a result, besides the recipe."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

DECIDING = ("numpy", "numba", "torch", "open_clip_torch", "pillow", "transformers", "tokenizers")
"""The libraries whose versions can change the last bits of what is computed."""
DECIDING_VARIABLES = ("OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR")


def machine(threads: int) -> str:
    """The kind of machine at hand, with all that may change the last bits of a result; the same text, the same bits."""
    parts = [_hardware(), f"{threads} threads", *(f"{name} {_version(name)}" for name in DECIDING)]
    parts += [f"{name}={os.environ[name]}" for name in DECIDING_VARIABLES if name in os.environ]
    parts += filter(None, [_gpu()])
    return ", ".join(parts)


@functools.cache
def _hardware() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    processor = {"model name": "", "flags": ""}
    for line in lines:  # processors of one name can differ in what they can do
        key, _, value = line.partition(":")
        processor |= {key.strip(): value.strip()} if key.strip() in processor else {}
    abilities = hashlib.sha256(processor["flags"].encode()).hexdigest()[:8]
    return f"{platform.machine()} {processor['model name'] or platform.processor()} ({abilities})"


_version = functools.cache(version)


def _gpu() -> str | None:
    """The GPU that this process computes on and its CUDA version, in words; None where it has used none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
