"""Writing a model of a bundle into a torch module in place: nothing is reallocated, all of it or none.

The loops on the CPU compute every value.  What they cannot reach in order, as on a GPU, is copied there.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.bundles.live_modules import PlacedTensor
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.store.dtypes import DTYPES
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo


def copy_of(placed: list[PlacedTensor]) -> Checkpoint:
    """A copy of a module's tensors, under the bundle's names."""
    infos, arrays = {}, {}
    for one in placed:
        infos[one.name] = TensorInfo(one.dtype, tuple(one.tensor.shape))
        copied = np.array(_bytes(one.tensor.detach().cpu().reshape(-1)))
        arrays[one.name] = copied.view(DTYPES[one.dtype].numpy).reshape(one.tensor.shape)
    return Checkpoint(title="the module", tensors=infos, arrays=arrays)


def overwrite(placed: list[PlacedTensor], weights: TaskWeights, before: TaskWeights) -> None:
    """Write ``weights`` over a module's tensors; if anything stops it, ``before`` over those that it has.

    The files of both are checked already.
    """
    try:
        _write(placed, weights)
    except BaseException:
        of_base = {name: info.shape for name, info in before.tensors.items()}
        _write([one for one in placed if of_base.get(one.name) == tuple(one.tensor.shape)], before)
        raise


@torch.no_grad()
def _write(placed: list[PlacedTensor], weights: TaskWeights) -> None:
    reached: list[PlacedTensor] = []
    others: list[PlacedTensor] = []
    for one in placed:
        in_order = one.tensor.device.type == "cpu" and one.tensor.is_contiguous()
        (reached if in_order else others).append(one)
    weights.fill((one.name, one.dtype, _bytes(one.tensor.detach().view(-1))) for one in reached)
    # torch has seen nothing of it, and would go backward through values that are no longer there
    torch.autograd.graph.increment_version([one.tensor for one in reached if not one.tensor.is_inference()])
    for one in others:
        run = torch.empty(one.tensor.numel(), dtype=one.tensor.dtype)
        weights.fill([(one.name, one.dtype, _bytes(run))])
        one.tensor.detach().copy_(run.view(one.tensor.shape))


def _bytes(run: torch.Tensor) -> NDArray[np.uint8]:
    return run.view(torch.uint8).numpy()
