"""Writing a model of a bundle into a torch module in place: nothing is reallocated, all of it or none.

On a GPU, torch gives the results of the loops on the CPU bit by bit: one float32 multiplication, one addition, one
rounding, none fused.  Packed tensors are uploaded once and unpacked in pieces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.bundles.live_modules import PlacedTensor
from tallmasks.bundles.packed_tau import pieces
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.store.dtypes import DTYPES, torch_codes, torch_dtypes
from tallmasks.store.parallel import parallel
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo

PIECE = 1 << 22
"""Values that are unpacked on a GPU at once; a multiple of 8."""
Uploaded = dict[tuple[str, str, str], torch.Tensor]
"""Stored tensors of a bundle on GPUs: by device, part and tensor."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ModuleCopy(Checkpoint):
    """theta_0 as a module had it: ``flats`` by name, each on the device where it was."""

    flats: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, placed: list[PlacedTensor], names: Collection[str]) -> ModuleCopy:
        """A copy of those of a module's tensors that are among ``names``."""
        kept = {name: tensor.detach() for name, tensor, _ in placed if name in names}
        copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in kept.items()}
        infos = {name: TensorInfo(torch_codes()[tensor.dtype], tuple(tensor.shape)) for name, tensor in kept.items()}
        flats = {name: tensor.reshape(-1) for name, tensor in copies.items()}
        return cls(title="the module", tensors=infos, flats=flats)

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        return self.flats[name][start:stop].cpu().float().numpy()

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        return self.flats[name][start:stop].cpu().view(torch.uint8).numpy()


def overwrite(placed: list[PlacedTensor], weights: TaskWeights, before: TaskWeights, uploaded: Uploaded) -> None:
    """Write ``weights`` over those of a module's tensors that ``weights.base`` has; ``before``, if anything stops it.

    Raises TallmasksError where a file is not the bundle's; then nothing was written.
    """
    weights.check()
    changed = [one for one in placed if one.name in weights.base.tensors]
    try:
        _write(changed, weights, uploaded)
    except BaseException:
        _write(changed, before, uploaded)
        raise


@torch.no_grad()
def _write(placed: list[PlacedTensor], weights: TaskWeights, uploaded: Uploaded) -> None:
    _write_here([one for one in placed if on_cpu(one.tensor)], weights)
    for name, tensor, _ in (one for one in placed if not on_cpu(one.tensor)):
        flat = _flat(tensor)
        fill_on_device(weights, name, flat, uploaded)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(flat.view(tensor.shape))


def _write_here(placed: list[PlacedTensor], weights: TaskWeights) -> None:
    flats = [_flat(one.tensor) for one in placed]
    targets = [(one.name, one.dtype, flat.view(torch.uint8).numpy()) for one, flat in zip(placed, flats, strict=True)]

    def fill(job: tuple[str, str, NDArray, int, int]) -> None:
        name, dtype, raw, start, stop = job
        width = DTYPES[dtype].width
        weights.fill(name, start, stop, raw[start * width : stop * width], dtype)

    parallel(fill, [(*one, *piece) for one in targets for piece in pieces(one[2].size // DTYPES[one[1]].width)])
    for one, flat in zip(placed, flats, strict=True):
        if flat.data_ptr() != one.tensor.data_ptr():
            one.tensor.detach().copy_(flat.view(one.tensor.shape))
    # torch has seen nothing of it, and would go backward through values that are no longer there
    torch.autograd.graph.increment_version([one.tensor for one in placed if not one.tensor.is_inference()])


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's values as one row: a view, or where they do not lie in order a new tensor to be copied back."""
    if tensor.is_contiguous():
        return tensor.detach().view(-1)
    return torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)


def on_cpu(tensor: torch.Tensor) -> bool:
    """Whether the compiled loops can reach a tensor."""
    return tensor.device.type == "cpu"


def fill_on_device(weights: TaskWeights, name: str, out: torch.Tensor, uploaded: Uploaded) -> None:
    """All values of a tensor of floats into ``out``, contiguous and flat, in its dtype and on its device."""
    for start in range(0, out.numel(), PIECE):
        stop = min(start + PIECE, out.numel())
        is_own = weights.task is not None and name in weights.parts.manifest.buffers
        if isinstance(weights.base, ModuleCopy) and not is_own:
            theta = weights.base.flats[name][start:stop].to(out.device)
        else:
            raw = torch.from_numpy(np.array(weights.constant(name, start, stop)))
            theta = raw.view(torch_dtypes()[weights.base.tensors[name].dtype]).to(out.device)
        if weights.task is not None and name in weights.parts.manifest.stored:
            theta = theta.float() + _update(weights, weights.task, name, start, stop, out.device, uploaded)
        out[start:stop].copy_(theta)


def _update(
    weights: TaskWeights, task: str, name: str, start: int, stop: int, device: torch.device, uploaded: Uploaded
) -> torch.Tensor:
    """Values of a task's update; a task's own tensors are unpacked on the CPU each time."""
    parts = weights.parts
    if parts.manifest.codings:
        return torch.from_numpy(parts.update(task, name, start, stop)).to(device)

    def upload(part: str, raw: NDArray) -> torch.Tensor:
        key = (str(device), part, name)
        if key not in uploaded:
            uploaded[key] = torch.from_numpy(np.array(raw)).to(device)
        return uploaded[key]

    packed = parts.tau(name)
    tau = upload("merged", packed.raw).view(torch_dtypes()[packed.dtype])[start:stop].float()
    if packed.dtype == "I8":
        tau = tau * upload("scales", packed.row_scales)[torch.arange(start, stop, device=device) // packed.row]
    bits = upload(f"masks {task}", parts.of_task(task)[name])[start // 8 : -(-stop // 8)]
    places = torch.arange(8, dtype=torch.uint8, device=device)
    keep = ((bits[:, None] >> places) & 1).reshape(-1)[: stop - start].bool()
    scale = torch.tensor(parts.manifest.scale[task], dtype=torch.float32, device=device)
    return torch.where(keep, tau * scale, torch.zeros((), dtype=torch.float32, device=device))
