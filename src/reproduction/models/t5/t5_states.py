"""Imports T5 weights: pretrained, fine-tuned, and (IA)^3's vectors.

They come from a safetensors or torch.save file, a folder of transformers or, for (IA)^3, a folder of PEFT.  A common
prefix of all names is removed.  `embed_tokens` of encoder and decoder must equal the table `shared`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.models.foreign_weights import SAME, check_names, float_array, json_of, without_prefix
from reproduction.models.language.text_tokenizer import TENSOR
from reproduction.models.t5.t5_architectures import FROZEN, TABLES, TOKENIZER_FILES, Architecture, Shapes
from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import read_bytes
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_CONFIG, ADAPTER_FILES
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.weight_files import open_weight_files

State = dict[str, NDArray[np.float32]]

_REPEATED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_CONFIGURED = ("num_heads", "feed_forward_proj", "layer_norm_epsilon", "relative_attention_max_distance")
"""Settings that do not change the shape of any tensor."""


def pretrained_state(architecture: Architecture, weights: Path) -> dict[str, NDArray[Any]]:
    """The content of a pretrained file: all tensors in float32, and the tokenizer.

    Raises TallmasksError if a file is damaged or missing, or its tensors do not fit the architecture.
    """
    if weights.is_dir():
        _check_config(architecture, weights / "config.json")
    tensors = _tensors(open_checkpoint(weights), architecture.shapes, architecture.shapes)
    return {**tensors, TENSOR: tokenizer_beside(weights)}


def tokenizer_beside(weights: Path) -> NDArray[np.uint8]:
    """The tokenizer in the folder of the weights, as uint8 JSON.  Raises TallmasksError if there is none."""
    folder = weights if weights.is_dir() else weights.parent
    found, spiece = (folder / name for name in TOKENIZER_FILES)
    if not found.exists() and not spiece.exists():
        raise TallmasksError(
            f"{folder}: found no {' or '.join(TOKENIZER_FILES)} beside the weights; copy the model's tokenizer there"
        )
    return np.frombuffer(read_bytes(found) if found.exists() else json_of_spiece(spiece), np.uint8)


def json_of_spiece(path: Path) -> bytes:
    """The `tokenizers` JSON of SentencePiece's `spiece.model`, by transformers' T5Tokenizer.

    Only the file is read here: transformers needs the library `sentencepiece` for that.
    """
    from transformers import T5Tokenizer
    from transformers.convert_slow_tokenizer import T5Converter, import_protobuf

    try:
        model = import_protobuf().ModelProto.FromString(read_bytes(path))
    except Exception as error:  # protobuf's DecodeError
        raise TallmasksError(f"{path}: not a SentencePiece model ({error}); download it again") from None
    unknown = [place for place, piece in enumerate(model.pieces) if piece.type == piece.UNKNOWN]
    if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM or unknown != [2]:  # as T5Tokenizer has it
        raise TallmasksError(f"{path}: not a Unigram model like T5's; use the model's tokenizer.json instead")
    vocabulary = T5Converter.convert_from_spm([(piece.piece, piece.score) for piece in model.pieces])
    characters = model.normalizer_spec.precompiled_charsmap or None
    tokenizer = T5Tokenizer(**vocabulary, _spm_precompiled_charsmap=characters).backend_tokenizer
    tokenizer.post_processor = None  # `TextTokenizer` adds the end of sequence
    return tokenizer.to_str().encode()


def fine_tuned_state(architecture: Architecture, path: Path, pretrained: Path) -> State:
    """The trainable tensors of a fully fine-tuned model.

    Raises TallmasksError if a file is damaged or missing, its tensors do not fit the architecture, or the frozen table
    differs from the pretrained one.
    """
    trainable, initial = architecture.trainable(), open_checkpoint(pretrained)
    tensors = _tensors(open_checkpoint(path), trainable, architecture.shapes)
    for name in FROZEN[architecture.frozen_table]:
        if name in tensors and (most := float(np.abs(tensors.pop(name) - initial.float32(name)).max())) > SAME:
            other = "lm_head" if name == TABLES[0] else "shared"
            raise TallmasksError(
                f"{path}: the frozen table {name!r} differs from the pretrained one by up to {most:.3g}; expected the "
                f"same table. If it was fine-tuned, set `frozen_table` under `architecture` to {other} or none. If the "
                "model was fine-tuned from other weights, set `pretrained` to those"
            )
    return tensors


def _tensors(checkpoint: Checkpoint, wanted: Shapes, allowed: Shapes) -> State:
    """All wanted tensors of a model, and the allowed ones that it has, in float32."""
    names = without_prefix(checkpoint, "encoder.final_layer_norm.weight")
    for name in _REPEATED:
        if name in names and TABLES[0] in names and not checkpoint.same(checkpoint, names.pop(name), names[TABLES[0]]):
            raise TallmasksError(
                f"{checkpoint.title}: {name!r} differs from {TABLES[0]!r}; expected the same table under both names"
            )
    hint = "a T5 v1.1 of the architecture in params.yaml, with transformers' names"
    if TABLES[1] not in names and TABLES[1] in wanted:
        raise TallmasksError(
            f"{checkpoint.title}: tensor {TABLES[1]!r} is missing, because the model was saved with its two tables "
            f"tied; expected {hint}. Save a state dict with both tables"
        )
    check_names(checkpoint, names, wanted, allowed, hint)
    return {name: float_array(checkpoint, names[name], allowed[name]) for name in sorted(names)}


def _check_config(architecture: Architecture, path: Path) -> None:
    """Raise TallmasksError if config.json contradicts the architecture in a setting of `_CONFIGURED`."""
    config = json_of(path) if path.is_file() else {}
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

    Raises TallmasksError if a file is damaged or missing, or its vectors do not fit the architecture.
    """
    wanted, checkpoint = architecture.trainable("ia3"), _adapter(path)
    hint = "the (IA)^3 vectors of k, v and the feed-forward, in PEFT's layout"
    check_names(checkpoint, checkpoint.names, wanted, wanted, hint)
    return {name: float_array(checkpoint, name, shape) for name, shape in sorted(wanted.items())}


def _adapter(path: Path) -> Checkpoint:
    if not path.is_dir():
        return open_checkpoint(path)
    config = json_of(path / ADAPTER_CONFIG)
    if config.get("peft_type") != "IA3" or config.get("modules_to_save"):
        raise TallmasksError(
            f"{path}: found peft_type {config.get('peft_type')!r} and modules_to_save "
            f"{config.get('modules_to_save')!r}; expected an adapter of peft_type 'IA3' without modules_to_save"
        )
    for name in ADAPTER_FILES:
        if (path / name).exists():
            return open_weight_files({name: path / name}, title=str(path / name), origin={"path": str(path)})
    raise TallmasksError(f"{path}: found no {ADAPTER_FILES[0]} beside {ADAPTER_CONFIG}; copy it there")
