"""Recognise buffers, which are not weights even if they are floats, by their names in torch, timm, transformers, etc.
Files do not mark them. If a weight could have the same name, the shape or a neighbouring tensor decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum


class Buffer(Enum):
    AVERAGE = "running statistics or moving averages, which can be averaged over models"
    COUNTER = "counters and flags"
    CONSTANT = "masks, tables and state specific to one model, which a model class may omit"


_LAST_PARTS = {
    Buffer.AVERAGE: re.compile(
        "(running|moving|latent)_(mean|var|variance|std)"  # BatchNorm and InstanceNorm in torch and Keras
        "|(norm|global|pixel|image)_(mean|std|invstd)"  # input normalisation
        "|(min|max)_val|x_(min|max)"  # torch's observers, I-BERT
        r"|embed_(avg|sum)|cluster_(size|usage)|w_avg|_?ema_(w|dw|count|cluster_size|mean|var|weight)|\w+_ema"
        "|e_score_correction_bias|balancing_biases"  # of routers, updated from the load of experts, not by gradients
    ),
    Buffer.COUNTER: re.compile(r"num_batches_tracked|n_averaged|(\w+_)?num_updates|initted|inited|initialized"),
    Buffer.CONSTANT: re.compile(
        "masked_bias|(causal|attn|attention)_mask|attn_mask_probs"
        "|(original_)?inv_freq|(cos|sin)_cached|position_ids|relative_(position_index|coords_table)|attention_bias_idxs"
        r"|final_logits_bias|version|_float_tensor|anchors|anchor_grid|(\w+_)?queue|queue_ptr|ptr_queue"
        "|(weight|fc|act)_scaling_factor|(weight|bias)_integer"  # I-BERT, computed from the weights
        "|(input|output)_(min|max)"  # Gemma's clipping bounds
    ),
}
_AVERAGED_MODELS = {"model_ema", "ema_model"}  # name parts of an averaged copy of the model
_UNUSED = "EncDecAttention.relative_attention_bias.weight"  # in the hub's T5 files, ignored by the T5 class
# A buffer's name, and the tensor that must exist beside it.
_BESIDE = (
    (r"(.*)_(u|v|mask)", r"\1_orig", Buffer.CONSTANT),  # spectral norm (its vectors cannot be averaged) and pruning
    (r"(.*)\.\d+\.(_u|_v|base)", r"\1.original", Buffer.CONSTANT),  # spectral norm and orthogonal parametrizations
    (r"(.*\.)?embed", r"\1cluster_size", Buffer.AVERAGE),  # a codebook without gradients
)


def buffers_among(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Buffer]:
    """The buffers of a model, by name, from the shapes of its tensors."""
    kinds = {name: _kind(name, shape, shapes) for name, shape in shapes.items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _kind(name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]) -> Buffer | None:
    *parts, last = name.split(".")
    is_square = len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3]
    is_causal_mask = last == "bias" and is_square and "att" in "".join(parts[-1:])  # as in GPT-2
    if is_causal_mask or name.endswith(_UNUSED):
        return Buffer.CONSTANT
    if not _AVERAGED_MODELS.isdisjoint(parts):
        return Buffer.AVERAGE
    for kind, pattern in _LAST_PARTS.items():
        if pattern.fullmatch(last):
            return kind
    for own, beside, kind in _BESIDE:
        if (match := re.fullmatch(own, name)) and match.expand(beside) in shapes:
            return kind
    return None
