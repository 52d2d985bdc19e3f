"""This machine's GPUs, by UUID, and what torch has to be told of them.

A process that has asked torch for a GPU cannot be forked.  So only what computes asks, or a short-lived process
(`python -m tallmasks.models.cuda COUNT`).  NVIDIA's management library lists devices without that.
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
"""The environment variable that tells a job how many share its GPU."""
ON_A_CPU = "set gpu: 0 under models.<model>.resources in params.yaml to compute on a CPU"


def usable() -> list[str]:
    """UUIDs of the devices that jobs may use: those in CUDA_VISIBLE_DEVICES, else all that NVIDIA's library lists.

    A number in CUDA_VISIBLE_DEVICES counts in nvidia-smi's order.  A UUID may be shortened.  Names that the library
    does not list, such as those of MIG's parts, stay as they are.
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
    """The devices that jobs may use.  Raises TallmasksError if they are fewer than one job's ``count``."""
    devices = usable()
    if not devices:
        choose("cuda")  # torch says why
    if len(devices) < count:
        raise TallmasksError(
            f"{count} GPUs wanted for one job, {len(devices)} listed ({', '.join(devices)}); name more in "
            f"CUDA_VISIBLE_DEVICES, or lower gpu under models.<model>.resources in params.yaml"
        )
    return devices


def choose(wanted: Wanted | None) -> torch.device:
    """The first GPU that this process sees, or the CPU; with None for ``wanted`` a GPU if there is a usable one.

    Raises:
        TallmasksError: A GPU is wanted and there is none to compute on; the message has torch's own.
    """
    import torch

    if wanted == "cpu":
        return torch.device("cpu")
    try:
        torch.zeros(1, device="cuda")  # needs a driver, a device and kernels for it
        if (fraction := memory_fraction()) < 1:
            torch.cuda.set_per_process_memory_fraction(fraction)
    except (RuntimeError, AssertionError) as error:
        if wanted is None:
            return torch.device("cpu")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        named = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})"
        why = str(error).splitlines()[0].rstrip(".")
        raise TallmasksError(f"torch has no GPU to compute on{named}: {why}; or {ON_A_CPU}") from None
    return torch.device("cuda")


def memory_fraction() -> float:
    """The fraction of a GPU's memory that this process may use; a shared GPU has some left for CUDA itself."""
    jobs = int(os.environ.get(JOBS_PER_GPU, "1"))
    return 1.0 if jobs == 1 else 0.95 / jobs


def free_bytes(device: torch.device) -> int:
    """Bytes of a device's memory for new tensors: free ones, and those that torch keeps unused, within the limit."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    allocated = torch.cuda.memory_allocated(device)
    kept = torch.cuda.memory_reserved(device) - allocated
    return min(free + kept, int(memory_fraction() * total) - allocated)


MORE_MEMORY = "end other programs on the GPU, set jobs_per_gpu: 1, or use a GPU with more memory"


@contextmanager
def room_for(what: str, advice: str = MORE_MEMORY) -> Iterator[None]:
    """Raise a TallmasksError where a GPU's memory is too small for ``what``; ``advice`` says what the user can do."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        sizes = ""
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()
            amounts = total, free, torch.cuda.memory_allocated()
            sizes = " ({:.3g} GB in all, {:.3g} GB free, {:.3g} GB used by this job)".format(
                *(n / 1e9 for n in amounts)
            )
        raise TallmasksError(f"the GPU's memory is too small for {what}{sizes}; {advice}") from None


def make_repeatable(tf32: bool = False) -> None:
    """Have a GPU compute the same bits from the same input, and products of float32 in float32 or in TF32."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product is computed
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on a device.  To a GPU by way of pinned memory, so that the copy runs beside the computation."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def require_gpus(count: int) -> None:
    """Raise TallmasksError if a job of ``count`` GPUs cannot compute here; torch is asked in this process."""
    enough(count)
    choose("cuda")


if __name__ == "__main__":
    try:
        require_gpus(int(sys.argv[1]))
    except TallmasksError as error:
        sys.exit(str(error))
