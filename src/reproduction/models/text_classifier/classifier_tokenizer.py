"""Tokenizes texts and pairs of texts as transformers does with the files of the model's folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from reproduction.models.classifiers.heads import packed
from reproduction.models.language.text_batches import TokenizedText
from reproduction.tasks.texts import PAIR
from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import read_bytes
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.vectors.checkpoints.folders import is_companion
from tallmasks.vectors.checkpoints.transformers_process import tokenizer_in


def open_tokenizer(folder: Path, vocabulary: int = sys.maxsize) -> Any:
    """The tokenizer that transformers loads from a folder.

    ``vocabulary``: the rows of the network's embedding tables.  Raises TallmasksError if a file is missing or damaged,
    or there are more tokens than rows.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # params.yaml sets a job's threads
    try:
        tokenizer = tokenizer_in(folder)
    except Exception as error:  # the libraries raise the bare class
        raise TallmasksError(
            f"{folder}: transformers cannot load the tokenizer: {' '.join(str(error).split())[:200]}; copy the "
            "tokenizer's files that belong to the weights into this folder"
        ) from None
    if (size := len(tokenizer)) > vocabulary:
        raise TallmasksError(
            f"{folder}: the tokenizer has {size} tokens, more than the {vocabulary} rows of the embedding tables in "
            "`architecture`; use the tokenizer that belongs to the weights"
        )
    return tokenizer


def stored_files(folder: Path) -> NDArray[np.uint8]:
    """The configuration and tokenizer of a model's folder, for `tokenizer_of`."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and is_companion(path.name))
    return packed({name: np.frombuffer(read_bytes(folder / name), np.uint8) for name in names})


def tokenizer_of(files: NDArray[np.uint8]) -> Any:
    with TemporaryFolder() as folder:
        for name, content in load(files.tobytes()).items():
            (folder / name).write_bytes(content.tobytes())
        return open_tokenizer(folder)


@dataclass(frozen=True)
class TokenizedPair(TokenizedText):
    """A text or a pair of texts.

    Attributes:
        others: what its tokenizer returns besides token ids and attention mask, such as `token_type_ids`.
    """

    others: Mapping[str, list[int]] = field(default_factory=dict)


class ClassifierTokenizer:
    """``tokenizer``: see `open_tokenizer`; ``pad``: the token that fills batches, if the model has one."""

    def __init__(self, tokenizer: Any, pad: int | None) -> None:
        self._tokenizer, self.pad = tokenizer, pad

    def __call__(self, texts: Sequence[str], labels: Sequence[int], longest: int) -> list[TokenizedPair]:
        """Tokenize texts with special tokens, cut to `longest` tokens in total, as the tokenizer cuts them."""
        rows: list[dict[str, list[int]]] = []
        for _, some in groupby(texts, lambda text: PAIR in text):
            columns = map(list, zip(*(text.split(PAIR, 1) for text in some), strict=True))
            found = self._tokenizer(*columns, truncation=True, max_length=longest)
            rows += [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
        return [
            TokenizedPair(
                row["input_ids"] or [self.pad or 0],
                ([],),
                label,
                others={name: row[name] or [0] for name in sorted(row.keys() - {"input_ids", "attention_mask"})},
            )
            for row, label in zip(rows, labels, strict=True)
        ]
