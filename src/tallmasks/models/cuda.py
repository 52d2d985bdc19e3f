"""This machine's GPUs: all questions to CUDA and to NVIDIA's driver.

A question to torch initialises CUDA, after which a process cannot be forked.  So the process that computes asks, or a
short-lived one (`python -m tallmasks.models.cuda`).  NVIDIA's management library lists devices without that.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from tallmasks.store.errors import TallmasksError

if TYPE_CHECKING:
    import torch

Wanted = Literal["cpu", "cuda"]
ON_A_CPU = "or set gpu: 0 under models.<model>.resources in params.yaml to compute on a CPU"
NO_DRIVER = f"no NVIDIA driver found (libcuda.so.1); install one on this machine, {ON_A_CPU}"


@dataclass(frozen=True)
class Device:
    """A GPU, or one of the parts into which MIG divides one.

    Attributes:
        number: Of the GPU, in the order of its list.
        name: The product's.
        uuid: As CUDA_VISIBLE_DEVICES takes it, ``GPU-...`` or ``MIG-...``.
        gpu: The UUID of the whole GPU.
    """

    number: int
    name: str
    uuid: str
    gpu: str


@dataclass(frozen=True)
class Seen:
    """One device as torch sees it: its architecture, (9, 0) for sm_90, and its memory in bytes."""

    name: str
    uuid: str
    capability: tuple[int, int]
    memory: int = 0


@dataclass(frozen=True)
class Sight:
    """The answers of torch and the driver in one process.

    Attributes:
        torch: torch's version.
        built_for: The CUDA version of this build of torch, "13.2"; None for a build for CPUs.
        kernels: The architectures with kernels in this build, as `torch.cuda.get_arch_list` names them.
        driver: The newest CUDA version that the driver supports, "12.4"; None without a driver.
        devices: The devices that CUDA gives this process.
        visible: CUDA_VISIBLE_DEVICES in that process, if it is set.
        error: CUDA's error where it gives none.
    """

    torch: str
    built_for: str | None
    kernels: tuple[str, ...]
    driver: str | None
    devices: tuple[Seen, ...]
    visible: str | None = None
    error: str = ""


# -- asking -----------------------------------------------------------------------------------------------


def driver() -> str | None:
    """The newest CUDA version that this machine's driver supports; None without a driver."""
    version = ctypes.c_int()
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if status else f"{version.value // 1000}.{version.value % 1000 // 10}"


def sight() -> Sight:
    """Ask torch in this process, which initialises CUDA where there is one."""
    import torch

    devices: tuple[Seen, ...] = ()
    error = ""
    if torch.cuda.is_available():
        properties = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        devices = tuple(
            Seen(
                one.name,
                f"{'MIG' if 'MIG' in one.name else 'GPU'}-{one.uuid}",
                (one.major, one.minor),
                one.total_memory,
            )
            for one in properties
        )
    elif torch.version.cuda is not None:
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as refused:
            error = str(refused).splitlines()[0]
    kernels = tuple(torch.cuda.get_arch_list()) if devices else ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return Sight(str(torch.__version__), torch.version.cuda, kernels, driver(), devices, visible, error)


def free_bytes(device: torch.device) -> int:
    """Bytes of a device's memory for new tensors: free ones, and those that torch keeps unused."""
    import torch

    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


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


def elsewhere(visible: str | None = None) -> Sight:
    """`sight` in a short-lived process, for the devices that `visible` names, or for all of the machine.

    Raises:
        TallmasksError: torch cannot be imported there.
    """
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    command = [sys.executable, "-m", "tallmasks.models.cuda"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise TallmasksError(f"torch cannot be asked for GPUs: {last}; `make install` makes the environment anew")
    answer = json.loads(done.stdout)
    devices = tuple(Seen(**one | {"capability": tuple(one["capability"])}) for one in answer["devices"])
    return Sight(**answer | {"kernels": tuple(answer["kernels"]), "devices": devices})


# -- judging ----------------------------------------------------------------------------------------------


def refusal(seen: Sight) -> str | None:
    """Why a job cannot compute on the GPUs that it sees, and what to do, in one line; None if it can."""
    if seen.built_for is None:
        return (
            f"the installed torch {seen.torch} is a build for CPUs; `make install` in a fresh .venv installs the CUDA "
            f"build that requirements.lock pins, {ON_A_CPU}"
        )
    if not seen.devices:
        if seen.driver is None:
            return NO_DRIVER
        driver_version, built_version = (tuple(map(int, text.split("."))) for text in (seen.driver, seen.built_for))
        if driver_version < built_version:
            return (
                f"the NVIDIA driver knows CUDA up to {seen.driver}, and torch {seen.torch} asks for {seen.built_for}; "
                f"install a newer driver, or a torch built for CUDA {seen.driver} or older, {ON_A_CPU}"
            )
        named = "" if seen.visible is None else f" (CUDA_VISIBLE_DEVICES is {seen.visible!r})"
        why = f": {seen.error}" if seen.error else ""
        return f"CUDA gives this process no device{named}{why}; see what `nvidia-smi` says, {ON_A_CPU}"
    for one in seen.devices:
        if not _has_kernels(one.capability, seen.kernels):
            return (
                f"torch {seen.torch} has no kernels for {one.name} (sm_{one.capability[0]}{one.capability[1]}; it has "
                f"{', '.join(seen.kernels)}); leave this GPU out with TALLMASKS_GPUS, or install a torch that has, "
                f"{ON_A_CPU}"
            )
    return None


def _has_kernels(capability: tuple[int, int], kernels: Iterable[str]) -> bool:
    """Whether code for one of the architectures runs on a device: sm_80 on 8.6, compute_80 on anything newer."""

    def runs(kernel: str) -> bool:
        parts = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", kernel)
        if parts is None:
            return False
        built = int(parts[2]), int(parts[3])
        if parts[4] == "a":
            return built == capability
        portable = parts[1] == "compute" and not parts[4]
        return built <= capability and (portable or built[0] == capability[0])

    return any(map(runs, kernels))


def choose(wanted: Wanted | None) -> torch.device:
    """The first GPU that this process sees, or the CPU; with None for ``wanted`` a GPU if there is a usable one.

    Raises:
        TallmasksError: A GPU is wanted and there is none to compute on; the message says why.
    """
    import torch

    if wanted == "cpu":
        return torch.device("cpu")
    why = refusal(sight())
    if why is None:
        return torch.device("cuda")
    if wanted == "cuda":
        raise TallmasksError(f"this job is to compute on a GPU, and cannot: {why}")
    return torch.device("cpu")


# -- devices by name --------------------------------------------------------------------------------------


def listed() -> list[Device]:
    """The devices of this machine in nvidia-smi's order: GPUs, or the parts of those that MIG divides."""
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # a container may have CUDA without it
        return _as_cuda_numbers_them()
    devices: list[Device] = []
    for number in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(number)
        name, uuid = nvml.nvmlDeviceGetName(gpu), nvml.nvmlDeviceGetUUID(gpu)
        parts = [(nvml.nvmlDeviceGetName(part), nvml.nvmlDeviceGetUUID(part)) for part in _parts(nvml, gpu)]
        # CUDA does not give a divided GPU as a whole
        devices += [Device(number, name, own, uuid) for name, own in parts or [(name, uuid)]]
    return devices


def _parts(nvml: ModuleType, gpu: Any) -> Iterator[Any]:
    """The parts into which MIG divides a GPU; none for a whole one."""
    try:
        places = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if nvml.nvmlDeviceGetMigMode(gpu)[0] else 0
    except nvml.NVMLError:  # a GPU without MIG
        return
    for place in range(places):
        with suppress(nvml.NVMLError):  # no part in this place
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)


def _as_cuda_numbers_them() -> list[Device]:
    """The machine's devices in CUDA's own order, by torch; none without a driver."""
    if driver() is None:
        return []
    return [Device(number, one.name, one.uuid, one.uuid) for number, one in enumerate(elsewhere().devices)]


def usable(environment: Mapping[str, str] | None = None) -> list[Device]:
    """The devices that jobs may use: those in TALLMASKS_GPUS, else in CUDA_VISIBLE_DEVICES, else all.

    Both take numbers and UUIDs; TALLMASKS_GPUS has nvidia-smi's numbers, CUDA_VISIBLE_DEVICES those of CUDA.

    Raises:
        TallmasksError: A name fits no device of this machine, or several.
    """
    environment = os.environ if environment is None else environment
    for variable in ("TALLMASKS_GPUS", "CUDA_VISIBLE_DEVICES"):
        if variable in environment:
            names = [name.strip() for name in environment[variable].split(",") if name.strip()]
            return _named(variable, names, environment)
    return listed()


def enough(count: int) -> list[Device]:
    """The devices that jobs may use.  Raises TallmasksError if they are fewer than one job's ``count``."""
    devices = usable()
    if not devices:
        raise TallmasksError(f"{count} GPU{'s' * (count > 1)} wanted for one job, there is {nothing()}")
    if len(devices) < count:
        raise TallmasksError(
            f"{count} GPUs wanted for one job, {len(devices)} found ({', '.join(one.uuid for one in devices)}); set "
            "gpu in params.yaml under models.<model>.resources, or name more devices in TALLMASKS_GPUS"
        )
    return devices


def _named(variable: str, names: Sequence[str], environment: Mapping[str, str]) -> list[Device]:
    devices = listed()
    by_speed = variable == "CUDA_VISIBLE_DEVICES" and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    if by_speed and len({one.name for one in devices}) > 1 and any(name.isdigit() for name in names):
        devices = _as_cuda_numbers_them()  # the fastest first
    choices: dict[str, list[Device]] = {}
    for one in devices:
        choices.setdefault(one.gpu, []).append(one)  # a divided GPU stands for its parts
        choices.setdefault(one.uuid, [one])
    chosen: dict[str, Device] = {}
    for name in names:
        if name.isdigit():
            matches = {one.gpu for one in devices if one.number == int(name)}
        else:
            matches = {name} & choices.keys() or {uuid for uuid in choices if uuid.startswith(name)}
        if len(matches) != 1:
            there = ", ".join(f"{one.number} ({one.uuid})" for one in devices) or nothing()
            raise TallmasksError(
                f"{variable}: {name!r} names {len(matches) or 'no'} GPU{'s' * (len(matches) > 1)} of this machine; "
                f"there is {there}"
            )
        chosen |= {one.uuid: one for one in choices[matches.pop()]}
    return list(chosen.values())


def nothing() -> str:
    """Why no device is listed, and what to do."""
    if "" in (os.environ.get("TALLMASKS_GPUS"), os.environ.get("CUDA_VISIBLE_DEVICES")):
        return f"none that may be used: TALLMASKS_GPUS or CUDA_VISIBLE_DEVICES is set to nothing; unset it, {ON_A_CPU}"
    why = NO_DRIVER if driver() is None else refusal(elsewhere())
    return f"none: {why or 'nvidia-smi lists none, though torch sees one'}"


def main() -> None:
    print(json.dumps(asdict(sight())))


if __name__ == "__main__":
    main()
