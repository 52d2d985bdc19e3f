"""The orientation of a square linear weight: `nn.Linear` has outputs first, transformers' Conv1D inputs first. PEFT
stores one flag, that of the last module. Conv1D always has a bias, as long as the outputs, so the non-square layers
show whether a model has any Conv1D."""

from __future__ import annotations

from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.library_models import library_model


def inputs_first(name: str, base: Checkpoint, flag: bool) -> bool | None:
    """Whether the square weight ``name`` of the base has its inputs first; None if that cannot be determined. ``flag``:
    the adapter's `fan_in_fan_out`; if it is true, some layer has its inputs first."""
    tensors, module = base.tensors, name.removesuffix(".weight")
    if f"{module}.bias" not in tensors:
        return False
    ways = set()
    for path in (each.removesuffix(".bias") for each in tensors if each.endswith(".bias")):
        shape = tensors[f"{path}.weight"].shape if f"{path}.weight" in tensors else ()
        outputs = tensors[f"{path}.bias"].shape
        if len(set(shape)) == len(shape) == 2 and outputs in (shape[:1], shape[1:]):
            ways.add(outputs == shape[1:])
    if True not in ways:
        return None if flag else False
    if (model := library_model(base)) and (own := model.names([name]).get(name)) in model.tensors:
        return own in model.inputs_first
    return None
