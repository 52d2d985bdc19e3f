"""Tokenizes text with the `tokenizers` tokenizer stored in the pretrained file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.errors import TallmasksError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TENSOR = "tokenizer.json"
"""Name of the uint8 tensor in a pretrained file that contains the tokenizer's JSON in UTF-8."""
PAD, END = "<pad>", "</s>"


def _tokenizer_of(content: bytes, where: Path, vocabulary: int) -> Tokenizer:
    from tokenizers import Tokenizer

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # params.yaml sets a job's threads
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises the bare class
        raise TallmasksError(
            f"{where}: {TENSOR} is not a tokenizer of the library `tokenizers` ({error}); use the file that belongs to "
            "the weights"
        ) from None
    if (size := tokenizer.get_vocab_size()) > vocabulary:
        raise TallmasksError(
            f"{where}: the tokenizer has {size} tokens, more than the {vocabulary} rows of the embedding tables in "
            "`architecture`; use the tokenizer that belongs to the weights"
        )
    return tokenizer


class TextTokenizer:
    """A tokenizer with a padding and an end-of-sequence token.

    Args:
        content: The tokenizer's JSON in UTF-8.
        where: Its file, for messages.
        vocabulary: Number of rows of the network's embedding tables.

    Raises TallmasksError if the JSON is invalid, one of the two tokens is missing, or there are more tokens than rows.
    """

    def __init__(self, content: bytes, where: Path, vocabulary: int, pad: str = PAD, end: str = END) -> None:
        self._tokenizer = _tokenizer_of(content, where, vocabulary)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        numbers = {token: self._tokenizer.token_to_id(token) for token in (pad, end)}
        if absent := [token for token, number in numbers.items() if number is None]:
            raise TallmasksError(f"{where}: the tokenizer has no {' and no '.join(absent)}; expected both")
        self.pad, self.end = (int(number) for number in numbers.values() if number is not None)

    def __call__(self, texts: Sequence[str], longest: int | None = None) -> list[list[int]]:
        """Token ids of each text with the end of sequence, cut to `longest` tokens in total."""
        rows = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        return [[*(row if longest is None else row[: longest - 1]), self.end] for row in rows]

    def text(self, numbers: Sequence[int]) -> str:
        """Decode token ids, without special tokens."""
        return self._tokenizer.decode(list(numbers), skip_special_tokens=True)


def stored_tokenizer(tensors: dict[str, Any], weights: Path, vocabulary: int, **tokens: str) -> TextTokenizer:
    """Remove the tokenizer from a pretrained file's tensors and return it; `tokens`: `pad` and `end` of the class."""
    if TENSOR not in tensors:
        raise TallmasksError(
            f"{weights}: the tensor {TENSOR!r} with the tokenizer is missing; to use a model saved by transformers, "
            "set `pretrained` in params.yaml to its folder, not to the file in it"
        )
    return TextTokenizer(bytes(tensors.pop(TENSOR).numpy()), weights, vocabulary, **tokens)
