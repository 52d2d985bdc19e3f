"""Writing a model of a bundle into a torch module in place: nothing is reallocated, all of it or none.

The loops on the CPU compute every value.  What they cannot reach in order, as on a GPU, is copied there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.bundles.live_modules import PlacedTensor
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.store.dtypes import torch_codes
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo


@dataclass(frozen=True, eq=False, kw_only=True)
class ModuleCopy(Checkpoint):
    """theta_0 as a module had it: ``flats`` by name, on the CPU."""

    flats: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, placed: list[PlacedTensor], names: Collection[str]) -> ModuleCopy:
        """A copy of those of a module's tensors that are among ``names``."""
        kept = {name: tensor.detach() for name, tensor, _ in placed if name in names}
        infos = {name: TensorInfo(torch_codes()[tensor.dtype], tuple(tensor.shape)) for name, tensor in kept.items()}
        flats = {
            name: torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).view(-1) for name, tensor in kept.items()
        }
        return cls(title="the module", tensors=infos, flats=flats)

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        return self.flats[name][start:stop].float().numpy()

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        return _bytes(self.flats[name][start:stop])


def overwrite(placed: list[PlacedTensor], weights: TaskWeights, before: TaskWeights) -> None:
    """Write ``weights`` over those of a module's tensors that ``weights.base`` has; ``before``, if anything stops it.

    Raises TallmasksError where a file is not the bundle's; then nothing was written.
    """
    weights.check()
    changed = [one for one in placed if one.name in weights.base.tensors]
    try:
        _write(changed, weights)
    except BaseException:
        _write(changed, before)
        raise


@torch.no_grad()
def _write(placed: list[PlacedTensor], weights: TaskWeights) -> None:
    reached, others = [], []
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
