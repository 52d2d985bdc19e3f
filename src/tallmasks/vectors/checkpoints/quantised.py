"""Whether a checkpoint is quantised: its weights are integers or 8-bit floats then, and other tensors scale them."""

from __future__ import annotations

from tallmasks.store.plain_files import read_json
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

_CONFIG = "config.json"
_KEY = "quantization_config"
_PARTS = ("_scale_inv", ".SCB", ".qweight", ".qzeros", ".g_idx", ".absmax", ".quant_map", ".weight_packed", ".W_q")
"""How scales and packed weights are called at the end: by fp8, LLM.int8(), GPTQ and AWQ, bitsandbytes' 4 bits,
compressed-tensors, HQQ."""


def quantised(checkpoint: Checkpoint) -> str | None:
    """What shows that a checkpoint is quantised, in words, or None; no values are read."""
    if _in_config(checkpoint):
        return f"{_CONFIG} has {_KEY}"
    tensors = checkpoint.tensors.items()
    return next((said for name, info in tensors if (said := quantised_tensor(name, info.dtype, info.shape))), None)


def quantised_tensor(name: str, dtype: str, shape: tuple[int, ...]) -> str | None:
    """What shows that a tensor is of a quantised model, in words, or None: a scale's name, a float of 8 bits or less,
    or a matrix of 8-bit integers.  ``dtype`` is safetensors' or torch's name."""
    is_causal_mask = len(shape) == 4 and shape[:2] == (1, 1)  # of GPT-NeoX, GPT-Neo, CodeGen: uint8 [1, 1, n, n]
    if name.endswith(_PARTS):
        return f"{name} is a part of a quantised weight"
    small_float = dtype.startswith(("F8_", "F6_", "F4", "float8_", "float4_"))
    integers = dtype in ("I8", "U8", "int8", "uint8") and len(shape) > 1 and not is_causal_mask
    return f"{name} is {dtype} {list(shape)}" if small_float or integers else None


def _in_config(checkpoint: Checkpoint) -> bool:
    """Whether the configuration says so, of the model or of a part such as ``text_config``."""
    if _CONFIG not in checkpoint.companions:
        return False
    try:
        config = read_json(checkpoint.companions[_CONFIG])
    except (OSError, ValueError):  # for those who use it to judge
        return False
    parts = [config, *config.values()] if isinstance(config, dict) else []
    return any(isinstance(part, dict) and part.get(_KEY) for part in parts)
