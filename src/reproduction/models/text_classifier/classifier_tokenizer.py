"""Tokenizes texts and pairs of texts with the `tokenizers` tokenizer stored in the pretrained file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from reproduction.models.language.text_batches import TokenizedText
from reproduction.tasks.texts import PAIR


@dataclass(frozen=True)
class TokenizedPair(TokenizedText):
    """A text or a pair of texts.

    Attributes:
        types: 0 for tokens of the first text and 1 for those of the second, as its tokenizer numbers them.
    """

    types: tuple[int, ...] = ()


class ClassifierTokenizer:
    """``json``: the content of a tokenizer.json; ``pad``: the token that fills batches."""

    def __init__(self, json: str, pad: int) -> None:
        from tokenizers import Tokenizer

        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # params.yaml sets a job's threads
        self._tokenizer = Tokenizer.from_str(json)
        self._tokenizer.no_padding()
        self.pad = pad

    def __call__(self, texts: Sequence[str], labels: Sequence[int], longest: int) -> list[TokenizedPair]:
        """Tokenize texts with special tokens, cut to `longest` tokens in total."""
        self._tokenizer.enable_truncation(longest)
        inputs = [tuple(text.split(PAIR, 1)) if PAIR in text else text for text in texts]
        return [
            TokenizedPair(encoded.ids or [self.pad], ([],), label, types=tuple(encoded.type_ids or [0]))
            for encoded, label in zip(self._tokenizer.encode_batch(inputs), labels, strict=True)
        ]
