"""Which way round a square matrix of a linear layer is: `nn.Linear` has its outputs first, transformers' Conv1D last.

PEFT knows the module; its file has one flag for all modules, that of the last one.  Here the base's own tensors say it:
Conv1D always has a bias, and a bias is as long as the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallmasks.vectors.checkpoints.checkpoint import TensorInfo

_CONV1D = ("c_attn", "c_fc", "c_proj", "q_attn")
"""What GPT-2 and its relatives call their Conv1D layers; others have Linear layers of these names."""


def inputs_first(module: str, tensors: Mapping[str, TensorInfo], flag: bool) -> bool | None:
    """Whether the square weight of a module has its inputs first; None where nothing in the base says it.

    The nearest layers that are not square say it: those with names of Conv1D for such a name, else the others.

    ``module``: its path in the base's ``tensors``; ``flag``: the adapter's `fan_in_fan_out`; where it is true, some
    layer has its inputs first.
    """
    if f"{module}.bias" not in tensors:
        return False
    layers = {}
    for name, info in tensors.items():
        path, _, kind = name.rpartition(".")
        shape = tensors[f"{path}.weight"].shape if kind == "bias" and f"{path}.weight" in tensors else ()
        if len(set(shape)) == len(shape) == 2 and info.shape in (shape[:1], shape[1:]):
            layers[path] = info.shape == shape[1:]
    if True not in layers.values():
        return None if flag else False
    alike = {path: way for path, way in layers.items() if _is_conv1d(path) == _is_conv1d(module)}
    around = module
    while around:
        around = around.rpartition(".")[0]
        if ways := {way for path, way in alike.items() if not around or path.startswith(f"{around}.")}:
            return ways.pop() if len(ways) == 1 else None
    return None


def _is_conv1d(module: str) -> bool:
    return module.rpartition(".")[2] in _CONV1D
