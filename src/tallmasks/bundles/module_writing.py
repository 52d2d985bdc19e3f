"""Writes a bundle's models into a live torch module in place: without reallocation, and completely or not at all.

Contiguous CPU tensors are written by the CPU loops. All others are computed in plain torch on their own device, with
the same bits, in groups of tensors as flat vectors, because launching a GPU operation costs microseconds at any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.bundles.bundle_parts import BundleParts
from tallmasks.bundles.module_tensors import ModuleTensor
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.bundles.updates import in_order
from tallmasks.io.dtypes import DTYPES, code_of, torch_dtypes
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.parallel import cached
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.float_bytes import converted
from tallmasks.vectors.multiples import pieces

GROUP = 1 << 24
"""Values per group; a larger tensor gets a group of its own. Computing a group takes about 20 bytes per value."""


@dataclass(frozen=True, eq=False)
class Group:
    """Tensors of one dtype in a flat vector of ``size`` values. ``parts``: start and number of values of each."""

    parts: dict[str, tuple[int, int]]
    size: int
    dtype: str


def groups_of(parts: BundleParts, base: Checkpoint, names: Iterable[str]) -> list[Group]:
    stored = parts.manifest.encoded
    by_dtype: dict[str, list[str]] = {}
    for name in sorted({*names} & stored.keys() & base.tensors.keys()):
        by_dtype.setdefault(stored[name].dtype, []).append(name)
    groups = []
    for dtype, same in by_dtype.items():
        taken: dict[str, tuple[int, int]] = {}
        end = 0
        for name in same:
            if taken and end + stored[name].size > GROUP:
                groups.append(Group(taken, end, dtype))
                taken, end = {}, 0
            taken[name] = end, stored[name].size
            end += stored[name].size
        groups.append(Group(taken, end, dtype))
    return groups


class Dense(NamedTuple):
    """A piece whose integers are all kept, from position ``first`` of its group on; see `Update`."""

    first: int
    integers: torch.Tensor
    steps: torch.Tensor | None
    columns: int
    before: int

    def update(self) -> torch.Tensor:
        """Of multiples, float32 [n]; -0.0 where nothing changes, because x + -0.0 is x for every x."""
        assert self.steps is not None
        rows = self.steps if self.steps.numel() == 1 else self.steps.repeat_interleave(self.columns)[self.before :]
        return -(self.integers.float() * rows[: self.integers.numel()])


class DeviceUpdate(NamedTuple):
    """The update of a group on a device. ``positions``, int64 [k], ``values`` [k]: of the pieces with few changes."""

    positions: torch.Tensor
    values: torch.Tensor
    others: list[Dense]


class DeviceWeights:
    """Writes models of a bundle into a module's tensors, computed on one device.

    Args:
        names: the module's tensors.
        keep: keep uploads on the device: theta_0, and the updates of each task used.

    Attributes:
        nbytes: bytes of the tensors that are kept.
    """

    def __init__(
        self, parts: BundleParts, base: Checkpoint, device: torch.device, names: Iterable[str], keep: bool
    ) -> None:
        self._parts, self._base, self._device, self._keep = parts, base, device, keep
        self._groups, self.nbytes = groups_of(parts, base, names), 0
        self._weights = cached(lambda task: TaskWeights(parts, base, task))
        cached_if_kept = cached if keep else lambda upload: upload
        self._theta, self._update = cached_if_kept(self._upload_theta), cached_if_kept(self._upload_update)
        self._constant = cached_if_kept(self._upload_constant)

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
        """theta_0 plus the update, [size]; the same bits as `Update.apply`."""
        out, update = self._theta(group).clone(), self._update(group, task)
        are_bit_deltas = self._parts.manifest.coding == "bit_deltas"
        few = out[update.positions]
        out[update.positions] = _moved(few, update.values) if are_bit_deltas else _added(few, update.values)
        for one in update.others:
            part = out[one.first : one.first + one.integers.numel()]
            part.copy_(_moved(part, one.integers) if are_bit_deltas else _added(part, one.update()))
        return out

    def _upload_theta(self, group: Group) -> torch.Tensor:
        dtypes = self._base.tensors
        pieces = (
            (start, converted(self._base.raw_bytes(name, 0, size), dtypes[name].dtype, group.dtype))
            for name, (start, size) in group.parts.items()
        )
        return self._upload(group.dtype, group.size, pieces)

    def _upload_update(self, group: Group, task: str) -> DeviceUpdate:
        positions, values, others = [np.empty(0, np.int64)], [np.empty(0, self._dtype_of_few(group))], []
        for name, (first, size) in group.parts.items():
            for number, (start, _) in enumerate(pieces(size)):
                update = (self._parts.update if self._keep else self._parts.cached_update)(
                    task, name, number, self._base
                )
                if update.positions is not None:
                    positions.append(update.positions.astype(np.int64) + (first + start))
                    values.append(update.values)
                else:
                    steps = None if update.steps is None else self._array(update.steps)
                    before = update.start % update.columns
                    others.append(Dense(first + start, self._array(update.values), steps, update.columns, before))
        return DeviceUpdate(self._array(np.concatenate(positions)), self._array(np.concatenate(values)), others)

    def _dtype_of_few(self, group: Group) -> str:
        return f"i{DTYPES[group.dtype].width}" if self._parts.manifest.is_exact else "f4"

    def _array(self, values: NDArray) -> torch.Tensor:
        return self._upload(code_of(values.dtype), values.size, [(0, values)])

    def _upload_constant(self, task: str | None, name: str) -> torch.Tensor:
        weights: TaskWeights = self._weights(task)
        info = weights.tensors[name]
        return self._upload(info.dtype, info.size, [(0, weights.constant(name, 0, info.size))]).view(info.shape)

    def _upload(self, dtype: str, size: int, pieces: Iterable[tuple[int, NDArray]]) -> torch.Tensor:
        """Uploads a vector [size] of a safetensors dtype code through pinned memory. ``pieces``: the index of the first
        value, and the values."""
        width = DTYPES[dtype].width
        self.nbytes += size * width
        # one extra value, because torch cannot view an empty tensor in another dtype
        pinned = self._device.type == "cuda"
        host = torch.empty((size + 1) * width, dtype=torch.uint8, device="cpu", pin_memory=pinned)
        for start, piece in pieces:
            raw = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
            host[start * width :][: raw.size].copy_(torch.from_dlpack(raw))
        return host.to(self._device, non_blocking=True).view(torch_dtypes()[dtype])[:size]


def _added(stored: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    return ((stored if stored.dtype == torch.float64 else stored.float()) + update).to(stored.dtype)


def _moved(stored: torch.Tensor, differences: torch.Tensor) -> torch.Tensor:
    return in_order(in_order(stored.view(differences.dtype)) + differences).view(stored.dtype)


def copy_of(tensors: list[ModuleTensor]) -> Checkpoint:
    """A copy of a module's tensors, under the bundle's names."""
    infos, arrays = {}, {}
    for one in tensors:
        infos[one.name] = TensorInfo(one.dtype, tuple(one.tensor.shape))
        raw = np.array(_bytes(one.tensor.detach().cpu().reshape(-1)))
        arrays[one.name] = raw.view(DTYPES[one.dtype].numpy).reshape(one.tensor.shape)
    return Checkpoint(title="the module", tensors=infos, arrays=arrays)


def overwrite(
    tensors: list[ModuleTensor], weights: TaskWeights, before: TaskWeights, on_device: DeviceWeights | None
) -> None:
    """Writes ``weights`` to a module's tensors. If that fails, resets them to ``before``, except tensors whose shape
    differs. All files must have been checked. ``on_device``: the tensors kept on a device, if any."""
    try:
        _write(tensors, weights, on_device)
    except BaseException:
        shapes = {name: info.shape for name, info in before.tensors.items()}
        _write([one for one in tensors if shapes.get(one.name) == tuple(one.tensor.shape)], before, on_device)
        raise


def _write(tensors: list[ModuleTensor], weights: TaskWeights, on_device: DeviceWeights | None) -> None:
    if on_device is not None:
        on_device.write(tensors, weights.task)
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
