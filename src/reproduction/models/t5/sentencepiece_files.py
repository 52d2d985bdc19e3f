"""Converts SentencePiece's `spiece.model` to the same `tokenizers` tokenizer that transformers builds.

This needs only `protobuf`; transformers' own conversion also needs `sentencepiece`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import read_bytes

TOKENIZER_FILES = ("tokenizer.json", "spiece.model")
"""File names of tokenizers; the first that exists is used."""
_SENTINELS = 100
"""T5 adds `<extra_id_99>` to `<extra_id_0>` after the pieces, in this order."""
_WORD = "▁"


def tokenizer_beside(weights: Path) -> NDArray[np.uint8]:
    """The tokenizer in the folder of the weights, as uint8 JSON.  Raises TallmasksError if there is none."""
    folder = weights if weights.is_dir() else weights.parent
    for name in TOKENIZER_FILES:
        if (path := folder / name).exists():
            text = json_of_spiece(path).encode() if name == TOKENIZER_FILES[1] else read_bytes(path)
            return np.frombuffer(text, np.uint8)
    raise TallmasksError(
        f"{folder}: found no {' or '.join(TOKENIZER_FILES)} beside the weights; copy the model's tokenizer there"
    )


def json_of_spiece(path: Path) -> str:
    """The `tokenizers` JSON of a T5's spiece.model.  Raises TallmasksError for any other file or kind of model."""
    from transformers.convert_slow_tokenizer import import_protobuf

    try:
        model = import_protobuf().ModelProto.FromString(read_bytes(path))
    except Exception as error:  # protobuf's DecodeError
        raise TallmasksError(f"{path}: not a SentencePiece model ({error}); download it again") from None
    unknown = [place for place, piece in enumerate(model.pieces) if piece.type == piece.UNKNOWN]
    if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM or len(unknown) != 1:
        raise TallmasksError(
            f"{path}: found a SentencePiece model with {len(model.pieces)} pieces, expected T5's: a Unigram model with "
            "one unknown piece. Use the model's tokenizer.json instead"
        )
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    sentinels = [(f"<extra_id_{number}>", 0.0) for number in reversed(range(_SENTINELS))]
    vocabulary = [(piece.piece, piece.score) for piece in model.pieces] + sentinels
    tokenizer = Tokenizer(models.Unigram(vocabulary, unknown[0], False))
    if characters := model.normalizer_spec.precompiled_charsmap:
        tokenizer.normalizer = normalizers.Precompiled(characters)
    words = pre_tokenizers.Metaspace(replacement=_WORD, prepend_scheme="always", split=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words])
    tokenizer.decoder = decoders.Metaspace(replacement=_WORD, prepend_scheme="always", split=True)
    special = ["<pad>", "</s>", "<unk>", *(text for text, _ in sentinels)]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer.to_str()
