"""GPU memory of a fine-tuning, counted without a GPU.

The training's own code runs on torch's fake tensors, which have shapes, dtypes and devices, and no values.  Kernels
need further memory; nobody counted it.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tallmasks.models.families import family
from tallmasks.training.finetuning import adamw

USABLE = 0.9  # of a GPU's memory, by hand: CUDA, its libraries and kernels need some


def state_bytes(spec: Mapping[str, Any]) -> Counter[str]:
    """Bytes of all tensors of a training on a GPU between two steps, by device: "cuda" and "cpu"."""
    with FakeTensorMode() as ours, torch.device("cuda"):
        model = family(spec).outline(spec, 1)[0]  # type: ignore[attr-defined]
        optimizer = adamw(model, learning_rate=0.0, weight_decay=0.0, epsilon=1e-8)
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()
        sizes = Counter[str]()
        for device, size in _storages(ours).values():
            sizes[device] += size
    return sizes


def kept_bytes(spec: Mapping[str, Any], examples: int) -> int:
    """Bytes that a pass over so many of the largest examples keeps for its backward pass, beside weights and examples.

    Counted on the CPU, since torch has no mixed precision for a fake GPU.
    """
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    with FakeTensorMode() as ours:
        model, batch = family(spec).outline(spec, examples)  # type: ignore[attr-defined]
        model.train(True)
        there = _storages(ours)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.loss(batch)
    return sum(storage.nbytes() for pointer, storage in kept.items() if pointer not in there)


def _storages(mode: FakeTensorMode) -> dict[int, tuple[str, int]]:
    """Device and bytes of every storage of a mode's tensors that are in use."""
    gc.collect()
    tensors = [one for one in gc.get_objects() if type(one) is FakeTensor and one.fake_mode is mode]
    storages = {tensor.untyped_storage()._cdata: tensor for tensor in tensors}
    return {pointer: (one.device.type, one.untyped_storage().nbytes()) for pointer, one in storages.items()}


def at_once(spec: Mapping[str, Any]) -> int:
    """The largest examples per pass where the memory suffices."""
    return spec["resources"]["finetuning"].get("micro_batch_size", spec["finetuning"]["batch_size"])


def room(spec: Mapping[str, Any], memory: int) -> int:
    """The largest examples per pass on a GPU of ``memory`` bytes, halved as a training does; 0 if it is too small."""
    one, two = (kept_bytes(spec, examples) for examples in (1, 2))
    free = USABLE * memory - state_bytes(spec)["cuda"]
    examples = at_once(spec)
    while examples and one + (examples - 1) * (two - one) > free:
        examples //= 2
    return examples
