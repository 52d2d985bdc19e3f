"""Imports T5 weights: pretrained, fine-tuned, and (IA)^3's vectors.

They come from a safetensors or torch.save file, a folder of transformers or, for (IA)^3, a folder of PEFT.  A common
prefix of all names is removed.  `embed_tokens` of encoder and decoder must equal the table `shared`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.models.foreign_weights import SAME, check_names, finite_values, without_prefix
from reproduction.models.language.text_tokenizer import TENSOR
from reproduction.models.t5.sentencepiece_files import tokenizer_beside
from reproduction.models.t5.t5_architectures import FROZEN, IA3_SUFFIX, PEFT_PREFIX, TABLES, Architecture, Shapes
from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import read_plain_json
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_CONFIG, ADAPTER_FILES
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.weight_files import open_weight_files

State = dict[str, NDArray[np.float32]]

_REPEATED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""In old files; T5 does not use it."""
_OLD_IA3 = re.compile(r"(?P<module>.+)\.ia3_layer\.ia3_vector")
_CONFIGURED = ("num_heads", "feed_forward_proj", "layer_norm_epsilon", "relative_attention_max_distance")
"""Settings that do not change the shape of any tensor."""


def pretrained_state(architecture: Architecture, weights: Path) -> dict[str, NDArray[Any]]:
    """The content of a pretrained file: all tensors in float32, and the tokenizer.

    Raises TallmasksError if a file is damaged or missing, or its tensors do not fit the architecture.
    """
    if weights.is_dir():
        _check_config(architecture, weights / "config.json")
    tensors = _whole(open_checkpoint(weights), architecture.shapes, architecture.shapes)
    return {**tensors, TENSOR: tokenizer_beside(weights)}


def fine_tuned_state(architecture: Architecture, path: Path, pretrained: Path) -> State:
    """The trainable tensors of a fully fine-tuned model.

    Raises TallmasksError if a file is damaged or missing, its tensors do not fit the architecture, or the frozen table
    differs from the pretrained one.
    """
    trainable, initial = architecture.trainable(), open_checkpoint(pretrained)
    tensors = _whole(open_checkpoint(path), trainable, architecture.shapes)
    for name in FROZEN[architecture.frozen_table]:
        if name in tensors and (most := float(np.abs(tensors.pop(name) - initial.float32(name)).max())) > SAME:
            other = "lm_head" if name == TABLES[0] else "shared"
            raise TallmasksError(
                f"{path}: the frozen table {name!r} differs from the pretrained one by up to {most:.3g}; expected the "
                f"same table. If it was fine-tuned, set `frozen_table` under `architecture` to {other} or none. If the "
                "model was fine-tuned from other weights, set `pretrained` to those"
            )
    return tensors


def _whole(checkpoint: Checkpoint, wanted: Shapes, allowed: Shapes) -> State:
    """All wanted tensors of a model, and the allowed ones that it has, in float32."""
    names = without_prefix(checkpoint, "encoder.final_layer_norm.weight")
    for name in _REPEATED:
        if name in names and TABLES[0] in names and not checkpoint.same(checkpoint, names.pop(name), names[TABLES[0]]):
            raise TallmasksError(
                f"{checkpoint.title}: {name!r} differs from {TABLES[0]!r}; expected the same table under both names"
            )
    names.pop(_UNUSED, None)
    hint = "a T5 v1.1 of the architecture in params.yaml, with transformers' names"
    if TABLES[1] not in names and TABLES[1] in wanted:
        raise TallmasksError(
            f"{checkpoint.title}: tensor {TABLES[1]!r} is missing, because the model was saved with its two tables "
            f"tied; expected {hint}. Save a state dict with both tables"
        )
    check_names(checkpoint, names, wanted, allowed, hint)
    return {name: _array(checkpoint, names[name], allowed[name]) for name in sorted(names)}


def _array(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """One tensor in float32; axes of length 1 are ignored for vectors."""
    info = checkpoint.info(name)
    long_axes = [length for length in shape if length > 1]
    same_vector = len(long_axes) == 1 and [length for length in info.shape if length > 1] == long_axes
    if not info.is_float or (info.shape != shape and not same_vector):
        raise TallmasksError(
            f"{checkpoint.title}: tensor {name!r} is {list(info.shape)} of {info.dtype}, expected {list(shape)} of "
            "floats"
        )
    return finite_values(checkpoint, name).reshape(shape)


def _check_config(architecture: Architecture, path: Path) -> None:
    """Raise TallmasksError if config.json contradicts the architecture in a setting of `_CONFIGURED`."""
    config = _json(path) if path.is_file() else {}
    for key in _CONFIGURED:
        expected = getattr(architecture, key)
        if config.get(key, expected) != expected:
            raise TallmasksError(
                f"{path}: {key}: found {config[key]!r}, but `architecture` in params.yaml has {expected!r}; correct "
                "`architecture`, or use weights that match it"
            )
    if config.get("scale_decoder_outputs", config.get("tie_word_embeddings", False)):
        raise TallmasksError(
            f"{path}: found a T5 that scales its outputs (tie_word_embeddings, scale_decoder_outputs), like version "
            "1.0; expected a T5 v1.1"
        )


def ia3_state(architecture: Architecture, path: Path) -> State:
    """Imported (IA)^3 vectors under PEFT's names.

    In files older than PEFT, the feed-forward's vector rescales the output of `wi_1` instead of the input of `wo`.  It
    is the same vector, because the gate is an elementwise product.

    Raises TallmasksError if a file is damaged or missing, or its vectors do not fit the architecture.
    """
    wanted = architecture.trainable("ia3")
    checkpoint = _adapter(path)
    renamed = {_peft_name(name): name for name in checkpoint.names}
    if len(renamed) < len(checkpoint.names):
        raise TallmasksError(f"{checkpoint.title}: found a vector in two layouts; expected each vector once")
    hint = "the (IA)^3 vectors of k, v and the feed-forward, in PEFT's layout"
    check_names(checkpoint, renamed, wanted, wanted, hint)
    return {name: _array(checkpoint, renamed[name], wanted[name]) for name in sorted(renamed)}


def _adapter(path: Path) -> Checkpoint:
    if not path.is_dir():
        return open_checkpoint(path)
    config = _json(path / ADAPTER_CONFIG) if (path / ADAPTER_CONFIG).exists() else {}
    if config.get("peft_type") != "IA3" or config.get("modules_to_save"):
        raise TallmasksError(
            f"{path}: expected an adapter that PEFT saved, with {ADAPTER_CONFIG}, peft_type 'IA3' and no "
            f"modules_to_save; found peft_type {config.get('peft_type')!r} and modules_to_save "
            f"{config.get('modules_to_save')!r}"
        )
    for name in ADAPTER_FILES:
        if (path / name).exists():
            return open_weight_files({name: path / name}, title=str(path / name), origin={"path": str(path)})
    raise TallmasksError(f"{path}: found no {ADAPTER_FILES[0]} beside {ADAPTER_CONFIG}; copy it there")


def _peft_name(name: str) -> str:
    """PEFT's name of a vector; other names are returned unchanged."""
    if old := _OLD_IA3.fullmatch(name):
        module = re.sub(r"\.wi_1$", ".wo", old["module"].removeprefix("transformer."))
    elif name.endswith(IA3_SUFFIX):
        module = name.removesuffix(IA3_SUFFIX)
    else:
        return name
    return PEFT_PREFIX + module.removeprefix(PEFT_PREFIX) + IA3_SUFFIX


def _json(path: Path) -> dict[str, Any]:
    try:
        content = read_plain_json(path)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise TallmasksError(f"{path}: not a JSON object; copy the configuration file again")
    return content
