"""Writing a model of a bundle into a torch module in place: nothing is reallocated, all of it or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallmasks.bundles.device_updates import DeviceUpdates
from tallmasks.bundles.module_copy import PlacedTensor
from tallmasks.bundles.task_weights import TaskWeights
from tallmasks.bundles.update_kernels import PackedValues, in_parallel, pieces
from tallmasks.store.dtypes import FLOATS

if TYPE_CHECKING:
    import torch


def overwrite(placed: list[PlacedTensor], weights: TaskWeights, before: TaskWeights, device: DeviceUpdates) -> None:
    """Write ``weights`` over the values of a module's tensors; ``before``, if anything stops it on the way.

    Tensors that ``weights.base`` does not have, since no model changes them, are left as they are.
    Raises TallmasksError where a file is not the bundle's; then nothing was written.
    """
    weights.check()
    known = [one for one in placed if one.name in weights.base.tensors]
    try:
        _write(known, weights, device)
    except BaseException:
        _write(known, before, device)
        raise


def _write(placed: list[PlacedTensor], weights: TaskWeights, device: DeviceUpdates) -> None:
    import torch

    with torch.no_grad():
        here = [one for one in placed if on_cpu(one.tensor)]
        _write_here(here, weights)
        for name, tensor, _ in (one for one in placed if not on_cpu(one.tensor)):
            flat = _flat(tensor)
            device.fill(weights, name, flat)
            if flat.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(flat.view(tensor.shape))


def _write_here(placed: list[PlacedTensor], weights: TaskWeights) -> None:
    import torch

    flats = [_flat(one.tensor) for one in placed]
    raws = [flat.view(torch.uint8).numpy() for flat in flats]

    def fill(job: tuple[int, int, int]) -> None:
        index, start, stop = job
        name, _, dtype = placed[index]
        out = raws[index][start * FLOATS[dtype] : stop * FLOATS[dtype]]
        weights.fill(name, start, stop, PackedValues(out, dtype))

    in_parallel(fill, [(index, *piece) for index, flat in enumerate(flats) for piece in pieces(flat.numel())])
    for (_, tensor, _), flat in zip(placed, flats, strict=True):
        if flat.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(flat.view(tensor.shape))
        elif not tensor.is_inference():
            # torch has seen nothing of it, and would go backward through values that are no longer there
            torch.autograd.graph.increment_version(tensor)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's values as one row: a view, or where they do not lie in order a new tensor to be copied back."""
    import torch

    if tensor.is_contiguous():
        return tensor.detach().view(-1)
    return torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)


def on_cpu(tensor: torch.Tensor) -> bool:
    """Whether the compiled loops can reach a tensor."""
    return tensor.device.type == "cpu"
