"""Tokenizes text with the `tokenizers` tokenizer stored in the pretrained file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError

TENSOR = "tokenizer.json"
"""The uint8 tensor in a pretrained file with the tokenizer's JSON in UTF-8."""
PAD, END = "<pad>", "</s>"


class TextTokenizer:
    """A tokenizer with padding and end of sequence.

    Args:
        text: The tokenizer's JSON.
        where: Its file, for messages.
        vocabulary: Rows of the network's embedding tables.

    Raises TallmasksError if the JSON is invalid, lacks one of the two tokens, or has more tokens than the tables have
    rows.
    """

    def __init__(self, text: str, where: Path, vocabulary: int, pad: str = PAD, end: str = END) -> None:
        from tokenizers import Tokenizer

        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # params.yaml sets a job's threads
        try:
            self._tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises the bare class
            raise TallmasksError(f"{where}: {TENSOR} is no tokenizer of `tokenizers` ({error}); make it anew") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        numbers = {token: self._tokenizer.token_to_id(token) for token in (pad, end)}
        if absent := [token for token, number in numbers.items() if number is None]:
            raise TallmasksError(f"{where}: the tokenizer has no {' and no '.join(absent)}; expected both")
        self.pad, self.end = (int(number) for number in numbers.values() if number is not None)
        if (size := self._tokenizer.get_vocab_size()) > vocabulary:
            raise TallmasksError(
                f"{where}: the tokenizer has {size} tokens and the tables of `architecture` {vocabulary} rows; "
                "expected as many rows at least. Tokenizer and weights must belong together"
            )

    def __call__(self, texts: Sequence[str], longest: int | None = None) -> list[list[int]]:
        """Token ids of each text, end of sequence last, cut to `longest` including it."""
        rows = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        return [[*(row if longest is None else row[: longest - 1]), self.end] for row in rows]

    def text(self, numbers: Sequence[int]) -> str:
        """Decode token ids, without special tokens."""
        return self._tokenizer.decode(list(numbers), skip_special_tokens=True)


def stored_tokenizer(tensors: dict[str, Any], weights: Path, vocabulary: int, **tokens: str) -> TextTokenizer:
    """Remove and return the tokenizer among a pretrained file's tensors; `tokens`: `pad`, `end` of `TextTokenizer`."""
    if TENSOR not in tensors:
        raise TallmasksError(
            f"{weights}: no tensor {TENSOR!r}, which holds the tokenizer; a model as transformers saves it is "
            "converted if `pretrained` in params.yaml names its folder, not the file in it"
        )
    return TextTokenizer(_utf8(tensors.pop(TENSOR), weights), weights, vocabulary, **tokens)


def _utf8(text: Any, weights: Path) -> str:
    try:
        return bytes(text.numpy()).decode()
    except (UnicodeDecodeError, TypeError) as error:
        raise TallmasksError(f"{weights}: {TENSOR} is no text ({error}); make the file anew") from None
