"""Writes a bundle's models into a live torch module in place: without reallocation, and completely or not at all.

Contiguous CPU tensors are written by the CPU loops. All others are computed in plain torch on their own device, with
the same bits, in groups of tensors as flat vectors, because launching a GPU operation costs microseconds at any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.module_tensors import ModuleTensor
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.io.dtypes import DTYPES, OF_BUNDLES, torch_dtypes
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.parallel import once
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.packed_bits import unpacked

GROUP = 1 << 24
"""Values per group; a larger tensor gets a group of its own. Computing a group takes about 20 bytes per value."""


@dataclass(frozen=True, eq=False)
class Group:
    """Tensors of one dtype in a flat vector of ``size`` values. Each starts at a multiple of 8, so that its mask starts
    at a whole byte.

    Attributes:
        parts: start and number of values of each tensor.
        base_dtype, dtype: safetensors dtype codes of theta_0 as loaded, and of the bundle's models.
        is_coded: whether the tensors have a coding other than the dtype of tau_MTL.
    """

    parts: dict[str, tuple[int, int]]
    size: int
    base_dtype: str
    dtype: str
    is_coded: bool


def groups_of(parts: BundleParts, base: Checkpoint, names: Iterable[str]) -> list[Group]:
    stored, coded = parts.manifest.stored, parts.manifest.coding_texts
    by_form: dict[tuple[str, str, bool], list[str]] = {}
    for name in sorted({*names} & stored.keys() & base.tensors.keys()):
        by_form.setdefault((base.tensors[name].dtype, stored[name].dtype, name in coded), []).append(name)
    groups = []
    for form, same in by_form.items():
        taken: dict[str, tuple[int, int]] = {}
        end = 0
        for name in same:
            if taken and end + stored[name].size > GROUP:
                groups.append(Group(taken, end, *form))
                taken, end = {}, 0
            taken[name] = end, stored[name].size
            end += stored[name].size // 8 * 8 + 8
        groups.append(Group(taken, end, *form))
    return groups


class DeviceWeights:
    """Writes models of a bundle into a module's tensors, computed on one device.

    Args:
        names: the module's tensors.
        keep: keep uploads on the device: theta_0, tau as stored, and the packed masks or compressed tensors of each
            task used.
    """

    def __init__(
        self, parts: BundleParts, base: Checkpoint, device: torch.device, names: Iterable[str], keep: bool
    ) -> None:
        self._parts, self._base, self._device = parts, base, device
        self._groups = groups_of(parts, base, names)
        self._weights = once(lambda task: TaskWeights(parts, base, task))
        cached = once if keep else lambda upload: upload
        self._theta, self._tau = cached(self._upload_theta), cached(self._upload_tau)
        self._bits, self._coded = cached(self._upload_bits), cached(self._upload_coded)
        self._constant = cached(self._upload_constant)

    @torch.no_grad()
    def write(self, tensors: Sequence[ModuleTensor], task: str | None) -> None:
        """Writes a task's model, or theta_0, to tensors of any device and dtype."""
        weights: TaskWeights = self._weights(task)
        targets = {one.name: one.tensor.detach() for one in tensors}
        for group in self._groups:
            names = [name for name in group.parts if name in targets and (task is None or weights.is_updated(name))]
            if names:
                values = self._theta(group) if task is None else self._model(group, task)
                for name in names:
                    start, size = group.parts[name]
                    target = targets.pop(name)
                    target.copy_(values[start : start + size].view(target.shape), non_blocking=True)
        for name, target in targets.items():
            owner = None if weights.is_of_base(name) else task
            target.copy_(self._constant(owner, name), non_blocking=True)

    def _model(self, group: Group, task: str) -> torch.Tensor:
        """theta_0 plus the update, in the dtype of the bundle's models, [size]."""
        update = self._decoded(group, task) if self._parts.manifest.updates else self._masked_tau(group, task)
        return update.add_(self._theta(group).float()).to(torch_dtypes()[group.dtype])

    def _masked_tau(self, group: Group, task: str) -> torch.Tensor:
        """scale * tau where the task's mask is 1, +0.0 elsewhere, float32 [size]."""
        tau = self._decoded(group, None) if group.is_coded else self._tau(group).float()
        update = tau * float(self._parts.manifest.scale[task])
        return update.masked_fill_(~unpacked(self._bits(group, task)), 0.0)

    def _decoded(self, group: Group, task: str | None) -> torch.Tensor:
        """The decoded tensors of a task, or of tau_MTL if it is None, float32 [size]."""
        values = torch.zeros(group.size, dtype=torch.float32, device=self._device)
        for name, (start, size) in group.parts.items():
            values[start : start + size] = self._parts.manifest.codings[name].update(self._coded(task, name))
        return values

    def _upload_theta(self, group: Group) -> torch.Tensor:
        pieces = ((start, self._base.stored(name, 0, size)) for name, (start, size) in group.parts.items())
        return self._upload(group.base_dtype, group.size, pieces)

    def _upload_tau(self, group: Group) -> torch.Tensor:
        pieces = ((start, self._parts.coded(None, name)[""]) for name, (start, _) in group.parts.items())
        return self._upload(OF_BUNDLES[str(self._parts.manifest.dtype)], group.size, pieces)

    def _upload_bits(self, group: Group, task: str) -> torch.Tensor:
        masks = self._parts.of_task(task)
        pieces = ((start // 8, masks[name]) for name, (start, _) in group.parts.items())
        return self._upload("U8", group.size // 8, pieces)

    def _upload_coded(self, task: str | None, name: str) -> dict[str, torch.Tensor]:
        specs, uploaded = self._parts.manifest.codings[name].specs, {}
        for ending, part in self._parts.coded(task, name).items():
            uploaded[ending] = self._upload(specs[ending].dtype, part.size, [(0, part)]).view(part.shape)
        return uploaded

    def _upload_constant(self, task: str | None, name: str) -> torch.Tensor:
        weights: TaskWeights = self._weights(task)
        info = weights.tensors[name]
        return self._upload(info.dtype, info.size, [(0, weights.constant(name, 0, info.size))]).view(info.shape)

    def _upload(self, dtype: str, size: int, pieces: Iterable[tuple[int, NDArray]]) -> torch.Tensor:
        """Uploads a vector [size] of a safetensors dtype code through pinned memory. ``pieces``: the index of the first
        value, and the values."""
        width = DTYPES[dtype].width
        # one extra value, because torch cannot view an empty tensor in another dtype
        pinned = self._device.type == "cuda"
        host = torch.empty((size + 1) * width, dtype=torch.uint8, device="cpu", pin_memory=pinned)
        for start, piece in pieces:
            raw = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
            host[start * width :][: raw.size].copy_(torch.from_dlpack(raw))
        return host.to(self._device, non_blocking=True).view(torch_dtypes()[dtype])[:size]


def copy_of(tensors: list[ModuleTensor]) -> Checkpoint:
    """A copy of a module's tensors, under the bundle's names."""
    infos, arrays = {}, {}
    for one in tensors:
        infos[one.name] = TensorInfo(one.dtype, tuple(one.tensor.shape))
        raw = np.array(_bytes(one.tensor.detach().cpu().reshape(-1)))
        arrays[one.name] = raw.view(DTYPES[one.dtype].numpy).reshape(one.tensor.shape)
    return Checkpoint(title="the module", tensors=infos, arrays=arrays)


def overwrite(
    tensors: list[ModuleTensor], weights: TaskWeights, before: TaskWeights, kept: DeviceWeights | None
) -> None:
    """Writes ``weights`` to a module's tensors. If that fails, resets them to ``before``, except tensors whose shape
    differs. All files must have been checked. ``kept``: the tensors kept on a device, if any."""
    try:
        _write(tensors, weights, kept)
    except BaseException:
        shapes = {name: info.shape for name, info in before.tensors.items()}
        _write([one for one in tensors if shapes.get(one.name) == tuple(one.tensor.shape)], before, kept)
        raise


def _write(tensors: list[ModuleTensor], weights: TaskWeights, kept: DeviceWeights | None) -> None:
    if kept is not None:
        kept.write(tensors, weights.task)
        return
    contiguous: list[ModuleTensor] = []
    others: dict[torch.device, list[ModuleTensor]] = {}
    for one in tensors:
        on_cpu = one.tensor.device.type == "cpu" and one.tensor.is_contiguous()
        (contiguous if on_cpu else others.setdefault(one.tensor.device, [])).append(one)
    weights.fill((one.name, one.dtype, _bytes(_flat(one.tensor.detach()))) for one in contiguous)
    # numpy wrote the values, so autograd must be told that tensors saved for backward are outdated
    torch.autograd.graph.increment_version([one.tensor for one in contiguous if not one.tensor.is_inference()])
    for device, some in others.items():
        names = [one.name for one in some]
        DeviceWeights(weights.parts, weights.base, device, names, keep=False).write(some, weights.task)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A view [n] of a contiguous tensor; an axis of length 1 can have any stride."""
    return tensor.as_strided((tensor.numel(),), (1,))


def _bytes(flat: torch.Tensor) -> NDArray[np.uint8]:
    return flat.view(torch.uint8).numpy()
