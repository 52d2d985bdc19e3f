"""SentencePiece's `spiece.model` as a tokenizer of `tokenizers`, without the library `sentencepiece`.

The file is a message of Protocol Buffers, of which three fields are needed: the pieces (1), each a text (1), a score
(2) and a type (3); of the trainer's settings (2) the kind of model (3), 1 for Unigram; of the normalizer's (3) the
table of replaced characters (2).  Built from these is what transformers builds for T5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import read_bytes

TOKENIZER_FILES = ("tokenizer.json", "spiece.model")
"""Names of a tokenizer beside weights; the first that exists counts."""
_UNIGRAM, _UNKNOWN = 1, 2
_SENTINELS = 100
"""T5's `<extra_id_0>` to `<extra_id_99>`, which stand behind the pieces, the last first."""
_WORD = "▁"


def tokenizer_beside(weights: Path) -> NDArray[np.uint8]:
    """The tokenizer in a folder, or beside a file of weights, as `TENSOR`.  Raises TallmasksError if there is none."""
    folder = weights if weights.is_dir() else weights.parent
    for name in TOKENIZER_FILES:
        if (path := folder / name).exists():
            text = converted(path).encode() if name == TOKENIZER_FILES[1] else read_bytes(path)
            return np.frombuffer(text, np.uint8)
    raise TallmasksError(
        f"{folder}: no {' and no '.join(TOKENIZER_FILES)} beside the weights; expected a folder as transformers saves "
        "it. Copy the model's tokenizer there"
    )


def converted(path: Path) -> str:
    """The JSON that `tokenizers` reads, of a T5's spiece.model.

    Raises:
        TallmasksError: the file is no SentencePiece model, or none of the kind that T5 has.
    """
    try:
        pieces, kind, characters = _read(read_bytes(path))
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise TallmasksError(f"{path}: not a SentencePiece model ({error}); download it again") from None
    unknown = [place for place, (_, _, type_) in enumerate(pieces) if type_ == _UNKNOWN]
    if kind != _UNIGRAM or len(unknown) != 1:
        raise TallmasksError(
            f"{path}: a SentencePiece model of {len(pieces)} pieces that is no Unigram with one unknown piece; "
            "expected T5's. Give its tokenizer.json"
        )
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    sentinels = [(f"<extra_id_{number}>", 0.0) for number in reversed(range(_SENTINELS))]
    vocabulary = [(text, score) for text, score, _ in pieces] + sentinels
    tokenizer = Tokenizer(models.Unigram(vocabulary, unknown[0], False))
    if characters:
        tokenizer.normalizer = normalizers.Precompiled(characters)
    words = pre_tokenizers.Metaspace(replacement=_WORD, prepend_scheme="always", split=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words])
    tokenizer.decoder = decoders.Metaspace(replacement=_WORD, prepend_scheme="always", split=True)
    special = ["<pad>", "</s>", "<unk>", *(text for text, _ in sentinels)]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer.to_str()


def _read(message: bytes) -> tuple[list[tuple[str, float, int]], int, bytes]:
    """Pieces (text, score, type), the kind of model, and the table of replaced characters."""
    pieces, kind, characters = [], _UNIGRAM, b""
    for number, value in _fields(message):
        if number == 1 and isinstance(value, bytes):
            text, score, type_ = "", 0.0, 1
            for inner, part in _fields(value):
                if inner == 1 and isinstance(part, bytes):
                    text = part.decode()
                elif inner == 2 and isinstance(part, bytes):
                    (score,) = struct.unpack("<f", part)
                elif inner == 3 and isinstance(part, int):
                    type_ = part
            pieces.append((text, score, type_))
        elif number == 2 and isinstance(value, bytes):
            kind = next((part for inner, part in _fields(value) if inner == 3 and isinstance(part, int)), kind)
        elif number == 3 and isinstance(value, bytes):
            characters = next((p for inner, p in _fields(value) if inner == 2 and isinstance(p, bytes)), characters)
    if not pieces:
        raise ValueError("it has no pieces")
    return pieces, kind, characters


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: whole numbers, and bytes of anything else."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _number(message, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _number(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"an unknown kind of field at byte {at}")
        if at + size > len(message):
            raise ValueError("it ends too early")
        yield number, message[at : at + size]
        at += size


def _number(message: bytes, at: int) -> tuple[int, int]:
    """A whole number in groups of seven bits, and where the next byte is."""
    number = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError(f"a number of more than ten bytes before byte {at}")
