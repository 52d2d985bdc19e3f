"""Writes a model of a bundle into a torch module in place: without reallocation, and completely or not at all.

Contiguous CPU tensors are written by the CPU loops, all others by torch on their own device.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.bundles.device_weights import DeviceWeights
from tallmasks.bundles.live_modules import ModuleTensor
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.io.dtypes import DTYPES
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo


def copy_of(tensors: list[ModuleTensor]) -> Checkpoint:
    """A copy of a module's tensors, under the bundle's names."""
    infos, arrays = {}, {}
    for one in tensors:
        infos[one.name] = TensorInfo(one.dtype, tuple(one.tensor.shape))
        copied = np.array(_bytes(one.tensor.detach().cpu().reshape(-1)))
        arrays[one.name] = copied.view(DTYPES[one.dtype].numpy).reshape(one.tensor.shape)
    return Checkpoint(title="the module", tensors=infos, arrays=arrays)


def overwrite(
    tensors: list[ModuleTensor], weights: TaskWeights, before: TaskWeights, kept: DeviceWeights | None
) -> None:
    """Writes ``weights`` to a module's tensors; if that fails, restores them to ``before`` (where its shapes match).
    All files must have been checked. ``kept``: writes from the tensors kept on a device, if any."""
    try:
        _write(tensors, weights, kept)
    except BaseException:
        of_base = {name: info.shape for name, info in before.tensors.items()}
        _write([one for one in tensors if of_base.get(one.name) == tuple(one.tensor.shape)], before, kept)
        raise


def _write(tensors: list[ModuleTensor], weights: TaskWeights, kept: DeviceWeights | None) -> None:
    if kept is not None:
        kept.write(tensors, weights.task)
        return
    in_order: list[ModuleTensor] = []
    others: dict[torch.device, list[ModuleTensor]] = {}
    for one in tensors:
        on_cpu = one.tensor.device.type == "cpu" and one.tensor.is_contiguous()
        (in_order if on_cpu else others.setdefault(one.tensor.device, [])).append(one)
    weights.fill((one.name, one.dtype, _bytes(one.tensor.detach().view(-1))) for one in in_order)
    # numpy wrote the values, so autograd has to be told that tensors saved for backward are outdated
    torch.autograd.graph.increment_version([one.tensor for one in in_order if not one.tensor.is_inference()])
    for device, some in others.items():
        names = [one.name for one in some]
        DeviceWeights(weights.parts, weights.base, device, names, keep=False).write(some, weights.task)


def _bytes(run: torch.Tensor) -> NDArray[np.uint8]:
    return run.view(torch.uint8).numpy()
