"""Tokenizes texts and pairs of texts with the `tokenizers` tokenizer stored in the pretrained file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reproduction.models.language.text_batches import TokenizedText
from reproduction.tasks.texts import PAIR

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class TokenizedPair(TokenizedText):
    """A text or a pair of texts.

    Attributes:
        types: 0 for tokens of the first text and 1 for those of the second, as its tokenizer numbers them.
    """

    types: tuple[int, ...] = ()


class ClassifierTokenizer:
    """``tokenizer``: see `tokenizer_of`; ``pad``: the token that fills batches, if the model has one."""

    def __init__(self, tokenizer: Tokenizer, pad: int | None) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.no_padding()
        self._side = (self._tokenizer.truncation or {}).get("direction", "right")
        self.pad = pad

    def __call__(self, texts: Sequence[str], labels: Sequence[int], longest: int) -> list[TokenizedPair]:
        """Tokenize texts with special tokens, cut to `longest` tokens in total, at the end that the tokenizer names."""
        self._tokenizer.enable_truncation(longest, direction=self._side)
        inputs = [tuple(text.split(PAIR, 1)) if PAIR in text else text for text in texts]
        return [
            TokenizedPair(encoded.ids or [self.pad or 0], ([],), label, types=tuple(encoded.type_ids or [0]))
            for encoded, label in zip(self._tokenizer.encode_batch(inputs), labels, strict=True)
        ]
