"""Lists GPUs, and configures torch for them.

A process cannot fork after torch has initialised CUDA.  So NVIDIA's management library lists the devices, and
`python -m reproduction.models.cuda COUNT` checks in a separate process that torch can use them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from tallmasks.errors import TallmasksError

if TYPE_CHECKING:
    import torch

Wanted = Literal["cpu", "cuda"]
JOBS_PER_GPU = "TALLMASKS_JOBS_PER_GPU"
"""Environment variable: the number of jobs that share a GPU."""
ON_A_CPU = "set gpu: 0 under models.<model>.resources in params.yaml to compute on a CPU"


def usable() -> list[str]:
    """UUIDs of the devices that jobs can use: those in CUDA_VISIBLE_DEVICES, or all devices if it is not set.

    Numbers in CUDA_VISIBLE_DEVICES follow nvidia-smi's order, and UUIDs can be abbreviated.  Names that NVIDIA's
    library does not list, such as MIG instances, are kept.
    """
    listed = _listed()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return listed
    names = filter(None, map(str.strip, visible.split(",")))
    return list(dict.fromkeys(_uuid(name, listed) for name in names))


def _listed() -> list[str]:
    import pynvml as nvml

    try:
        nvml.nvmlInit()
        numbers = range(nvml.nvmlDeviceGetCount())
        return [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(number)) for number in numbers]
    except nvml.NVMLError:  # no driver
        return []


def _uuid(name: str, listed: list[str]) -> str:
    if name.isdigit() and int(name) < len(listed):
        return listed[int(name)]
    return next((uuid for uuid in listed if uuid.startswith(name)), name)


def enough(count: int) -> list[str]:
    """`usable`.  Raises TallmasksError if these are fewer than ``count``."""
    devices = usable()
    if not devices:
        choose("cuda")  # raises with torch's reason
    if len(devices) < count:
        raise TallmasksError(
            f"a job needs {count} GPUs, found {len(devices)} ({', '.join(devices)}); add devices to "
            "CUDA_VISIBLE_DEVICES, or lower gpu under models.<model>.resources in params.yaml"
        )
    return devices


def choose(wanted: Wanted | None) -> torch.device:
    """The first visible GPU or the CPU; for None the GPU if it works, else the CPU.

    Raises TallmasksError with torch's reason if "cuda" is wanted and no GPU works.
    """
    import torch

    if wanted == "cpu":
        return torch.device("cpu")
    try:
        torch.zeros(1, device="cuda")  # fails without a driver, a device or kernels for it
        if (fraction := memory_fraction()) < 1:
            torch.cuda.set_per_process_memory_fraction(fraction)
    except (RuntimeError, AssertionError) as error:
        if wanted is None:
            return torch.device("cpu")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        named = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})"
        why = str(error).splitlines()[0].rstrip(".")
        raise TallmasksError(f"torch cannot use a GPU{named}: {why}; or {ON_A_CPU}") from None
    return torch.device("cuda")


def memory_fraction() -> float:
    """The fraction of a GPU's memory that this process may use; on a shared GPU, 5 % stays free for CUDA itself."""
    jobs = int(os.environ.get(JOBS_PER_GPU, "1"))
    return 1.0 if jobs == 1 else 0.95 / jobs


def free_bytes(device: torch.device) -> int:
    """Bytes available for new tensors within `memory_fraction`, including the cache of torch's allocator."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    allocated = torch.cuda.memory_allocated(device)
    cached = torch.cuda.memory_reserved(device) - allocated
    return min(free + cached, int(memory_fraction() * total) - allocated)


MORE_MEMORY = "end other programs on the GPU, set jobs_per_gpu: 1, or use a GPU with more memory"


@contextmanager
def reporting_out_of_memory(what: str, advice: str = MORE_MEMORY) -> Iterator[None]:
    """A context that turns an out-of-memory error into a TallmasksError: what did not fit, and what to do."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        sizes = ""
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()
            used = torch.cuda.memory_allocated()
            sizes = f" ({total / 1e9:.3g} GB in total, {free / 1e9:.3g} GB free, {used / 1e9:.3g} GB used by this job)"
        raise TallmasksError(f"the GPU's memory is too small for {what}{sizes}; {advice}") from None


def make_repeatable(tf32: bool = False) -> None:
    """Make GPU results deterministic, with float32 products computed in float32 or TF32."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product is computed
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to a device.  Copies to a GPU use pinned memory, so that they overlap with computation."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def require_gpus(count: int) -> None:
    """Raise TallmasksError if a job of ``count`` GPUs cannot run here; initialises CUDA in this process."""
    enough(count)
    choose("cuda")


if __name__ == "__main__":
    try:
        require_gpus(int(sys.argv[1]))
    except TallmasksError as error:
        sys.exit(str(error))
