"""Text to token numbers, by a tokenizer of `tokenizers` from the pretrained file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallmasks.models.t5.sentencepiece_files import converted
from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import read_bytes

TENSOR = "tokenizer.json"
"""The tensor in a pretrained file with the JSON as UTF-8, uint8."""
FILES = ("tokenizer.json", "spiece.model")
"""Names of a tokenizer beside weights; the first that exists counts."""
PAD, END = "<pad>", "</s>"


class TextTokenizer:
    """A tokenizer with padding and end of sequence, T5's or one with fewer words.

    Args:
        text: the JSON that `tokenizers` reads.
        where: its file, for messages.
        vocabulary: rows of the network's tables.

    Raises:
        TallmasksError: it is no tokenizer, has no `<pad>` or `</s>`, or has more tokens than the tables have rows.
    """

    def __init__(self, text: str, where: Path, vocabulary: int) -> None:
        from tokenizers import Tokenizer

        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # params.yaml sets a job's threads
        try:
            self._tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises the bare class
            raise TallmasksError(f"{where}: {TENSOR} is no tokenizer of `tokenizers` ({error}); make it anew") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        numbers = {token: self._tokenizer.token_to_id(token) for token in (PAD, END)}
        if absent := [token for token, number in numbers.items() if number is None]:
            raise TallmasksError(f"{where}: the tokenizer has no {' and no '.join(absent)}; expected T5's tokens")
        self.pad, self.end = (int(number) for number in numbers.values() if number is not None)
        if (size := self._tokenizer.get_vocab_size()) > vocabulary:
            raise TallmasksError(
                f"{where}: the tokenizer has {size} tokens and the tables of `architecture` {vocabulary} rows; "
                "expected as many rows at least. Tokenizer and weights must belong together"
            )

    def __call__(self, texts: Sequence[str], longest: int | None = None) -> list[list[int]]:
        """Token numbers of each text, end of sequence last; cut to `longest` with it."""
        rows = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        return [[*(row if longest is None else row[: longest - 1]), self.end] for row in rows]

    def text(self, numbers: Sequence[int]) -> str:
        """The text of token numbers, without special ones."""
        return self._tokenizer.decode(list(numbers), skip_special_tokens=True)


def tokenizer_beside(weights: Path) -> NDArray[np.uint8]:
    """The tokenizer in a folder, or beside a file of weights, as `TENSOR`.  Raises TallmasksError if there is none."""
    folder = weights if weights.is_dir() else weights.parent
    for name in FILES:
        if (path := folder / name).exists():
            text = converted(path).encode() if name == FILES[1] else read_bytes(path)
            return np.frombuffer(text, np.uint8)
    raise TallmasksError(
        f"{folder}: no {FILES[0]} and no {FILES[1]} beside the weights; expected a folder as transformers saves it. "
        "Copy the model's tokenizer there"
    )
