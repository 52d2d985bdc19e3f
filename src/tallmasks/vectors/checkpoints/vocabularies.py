"""A model's embeddings with the base's tokens: rows are found by the tokens' texts, as the tokenizers number them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import read_json
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo
from tallmasks.vectors.checkpoints.float_bytes import narrowed
from tallmasks.vectors.checkpoints.tied_names import is_embedding

TOKENIZER = "tokenizer.json"
LARGEST = 1 << 26
"""Bytes of one; of Gemma 3 it has 33 million."""


def with_tokens_of(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """A checkpoint whose embeddings have the rows of the base's tokens.  A token that it lacks has the base's row.

    Raises TallmasksError where vocabularies differ and one of the two has no tokenizer.json that can be read.
    """
    if type(task) is not Checkpoint:  # a LoRA, or a bundle's model: of the base's tokens
        return task
    names = [name for name in base.layout.names if is_embedding(name) and name in task.tensors]
    names = [name for name in names if len(base.tensors[name].shape) == len(task.tensors[name].shape) == 2]
    same_sizes = all(base.tensors[name].shape == task.tensors[name].shape for name in names)
    mine, theirs = (_ids(one, needed=not same_sizes) for one in (base, task))
    if same_sizes and (mine is None or theirs is None or mine == theirs):
        return task
    assert mine is not None and theirs is not None
    tensors, rows = dict(task.tensors), {}
    for name in names:
        (count, width), (there, _) = base.tensors[name].shape, task.tensors[name].shape
        found = np.full(count, -1)
        for text, number in mine.items():
            if number < count and theirs.get(text, there) < there:
                found[number] = theirs[text]
        rows[name] = found
        tensors[name] = TensorInfo(task.tensors[name].dtype, (count, width))
    facts = {one.name: getattr(task, one.name) for one in fields(Checkpoint)}
    return _WithTokens(**facts | {"tensors": tensors}, base=base, rows=rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class _WithTokens(Checkpoint):
    """``rows``: for every row of the base's embeddings the one here, or -1, by tensor."""

    base: Checkpoint
    rows: Mapping[str, NDArray[np.int64]]

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        name = self.aliases.get(name, name)
        if name not in self.rows:
            return super().stored(name, start, stop)
        dtype, (_, width) = self.tensors[name]
        first, last = start // width, -(-stop // width)
        rows = self.rows[name][first:last]
        taken = np.ascontiguousarray(self.arrays[name][np.maximum(rows, 0)]).view(np.uint8).reshape(len(rows), -1)
        if (lacking := rows < 0).any():
            of_base = self.base.piece(name, first * width, last * width)
            taken[lacking] = narrowed(of_base, dtype, name).view(np.uint8).reshape(len(rows), -1)[lacking]
        nbytes = taken.shape[1] // width
        return taken.reshape(-1)[(start - first * width) * nbytes : (stop - first * width) * nbytes]


def _ids(checkpoint: Checkpoint, needed: bool) -> dict[str, int] | None:
    """The number of every token by its text, added ones too; None without a tokenizer.json where none is needed."""
    try:
        content = read_json(checkpoint.companions[TOKENIZER], LARGEST)
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, list):  # of a unigram model: [text, score] in order
            vocabulary = {text: number for number, (text, _) in enumerate(vocabulary)}
        added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
        ids = {str(text): int(number) for text, number in {**vocabulary, **added}.items()}
        if min(ids.values()) < 0:
            raise ValueError
    except (KeyError, TypeError, ValueError, OSError, AttributeError) as error:
        if not needed:
            return None
        raise TallmasksError(
            f"{checkpoint.title} has no {TOKENIZER} that says which row is which token ({type(error).__name__}); save"
            " its tokenizer there with transformers' save_pretrained"
        ) from None
    return ids
