"""The arithmetic of a bundle with torch operations, on the device where a module is.

The packed tensors are uploaded once and unpacked in pieces; a task's own tensors, where it has some, are unpacked on
the CPU each time.  The results are those of the loops on the CPU, bit by bit: one float32 multiplication, one addition,
one rounding, none of them fused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tallmasks.bundles.module_copy import ModuleCopy
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.store.dtypes import torch_dtypes

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

PIECE = 1 << 22
"""Values that are unpacked at once; a multiple of 8."""


@dataclass(frozen=True)
class DeviceUpdates:
    """What of a bundle has been uploaded: the merged vector and masks as they are stored, by device and name."""

    uploaded: dict[tuple[str, str, str], torch.Tensor] = field(default_factory=dict)

    def fill(self, weights: TaskWeights, name: str, out: torch.Tensor) -> None:
        """All values of a tensor of floats into ``out``, contiguous and flat, in its dtype and on its device."""
        for start in range(0, out.numel(), PIECE):
            stop = min(start + PIECE, out.numel())
            theta = _theta(weights, name, start, stop, out.device)
            if weights.task is not None and name in weights.parts.manifest.stored:
                theta = theta.float() + self._update(weights, weights.task, name, start, stop, out.device)
            out[start:stop].copy_(theta)

    def _update(
        self, weights: TaskWeights, task: str, name: str, start: int, stop: int, device: torch.device
    ) -> torch.Tensor:
        import torch

        parts = weights.parts
        if parts.manifest.codings:
            return torch.from_numpy(parts.update(task, name, start, stop)).to(device)
        packed = parts.tau(name)
        tau = self._upload(device, "merged", name, packed.raw).view(torch_dtypes()[packed.dtype])[start:stop].float()
        if packed.dtype == "I8":
            scales = self._upload(device, "scales", name, packed.row_scales.view(np.uint8)).view(torch.float32)
            tau = tau * scales[torch.arange(start, stop, device=device) // packed.row]
        bits = self._upload(device, f"masks {task}", name, parts.bits(task, name))[start // 8 : -(-stop // 8)]
        places = torch.arange(8, dtype=torch.uint8, device=device)
        keep = ((bits[:, None] >> places) & 1).reshape(-1)[: stop - start].bool()
        scale = torch.tensor(parts.manifest.scale[task], dtype=torch.float32, device=device)
        return torch.where(keep, tau * scale, torch.zeros((), dtype=torch.float32, device=device))

    def _upload(self, device: torch.device, part: str, name: str, raw: NDArray[np.uint8]) -> torch.Tensor:
        import torch

        key = (str(device), part, name)
        if key not in self.uploaded:
            self.uploaded[key] = torch.from_numpy(np.array(raw)).to(device)
        return self.uploaded[key]


def _theta(weights: TaskWeights, name: str, start: int, stop: int, device: torch.device) -> torch.Tensor:
    """Values of theta_0 on the device, in the dtype of the base."""
    import torch

    if isinstance(weights.base, ModuleCopy):
        return weights.base.values[name][start:stop].to(device)
    raw = np.array(weights.base.stored(name, start, stop))
    return torch.from_numpy(raw).view(torch_dtypes()[weights.base.tensors[name].dtype]).to(device)
