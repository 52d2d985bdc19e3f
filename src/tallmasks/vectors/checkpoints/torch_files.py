"""Tensors in torch.save files, memory-mapped where possible; code in them is never run."""

from __future__ import annotations

import resource
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.errors import needed_for

if TYPE_CHECKING:
    import torch

_MEMORY = 1 << 30  # bytes, for everything but the tensors
_LARGEST_EXPANDED = 1 << 30  # Bytes of a tensor with stride 0; a small file can claim any size.
# Keys of the state dict in checkpoints of Lightning, torch's examples and DeepSpeed.
_AROUND = ("state_dict", "model", "model_state_dict", "module")


def tensors_in(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file, or of the only state dict in it. Files from before torch 1.6 are read into memory. Raises
    ValueError with the reason if the file is not usable, and TallmasksError without torch."""
    with needed_for(f"reading {path.name}, a torch.save file,"):
        import torch
    tensors = {}
    for name, tensor in _state_dict(_loaded(path), torch.Tensor).items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name!a:.100} is not a name, or its value is not a tensor")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.device.type != "cpu":
            kind = f"{tensor.dtype}, {tensor.layout}, on the device {tensor.device}"
            raise ValueError(f"tensor {name!a:.100} is {kind}; expected a dense, unquantised CPU tensor")
        nbytes = tensor.numel() * tensor.element_size()
        if nbytes > max(tensor.untyped_storage().nbytes(), _LARGEST_EXPANDED):
            raise ValueError(f"tensor {name!a:.100} has shape {list(tensor.shape)}, larger than its stored data")
        tensors[name] = tensor.detach()
    return tensors


def _loaded(path: Path) -> Any:
    import torch

    try:
        with _limited_memory(_MEMORY + 2 * path.stat().st_size):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=_can_be_mapped(path))
    except Exception as error:  # any type, for a damaged file; torch's own message advises to run its code
        raise ValueError(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from None


def _can_be_mapped(path: Path) -> bool:
    """Whether no entry is compressed; torch would map compressed bytes as if they were values."""
    try:
        with zipfile.ZipFile(path) as archive:
            return all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError):  # the format before torch 1.6
        return False


@contextmanager
def _limited_memory(more: int) -> Iterator[None]:
    """Limit memory to the present use plus ``more`` bytes: a few bytes of a pickle can ask for any amount."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _state_dict(saved: Any, kind: type) -> dict[Any, Any]:
    """The saved dict, or the only state dict in it, under a known key."""
    if not isinstance(saved, dict):
        raise ValueError("it is not a dict")
    inner = [
        name
        for name, value in saved.items()
        if isinstance(value, dict) and value and all(isinstance(one, kind) for one in value.values())
    ]
    if any(isinstance(value, kind) for value in saved.values()) or not inner:
        return saved
    if len(inner) > 1 or inner[0] not in _AROUND:
        found = ", ".join(map(ascii, inner))[:100]
        raise ValueError(f"it has state dicts under {found}; expected only one, under {', '.join(_AROUND)}")
    return saved[inner[0]]
