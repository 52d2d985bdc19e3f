"""Models with different vocabularies: rows are matched by the token's text in tokenizer.json. transformers determines
which tensors have one row per token: embeddings, the output layer and its bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, short
from tallmasks.io.plain_files import LARGEST_JSON, read_plain_json, reading
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.io.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo
from tallmasks.vectors.checkpoints.float_bytes import narrowed
from tallmasks.vectors.checkpoints.library_models import LibraryModel, library_advice, library_model
from tallmasks.vectors.checkpoints.new_files import edited, replaced

TOKENIZER = "tokenizer.json"
_LARGEST = 1 << 26  # bytes of a tokenizer.json; Gemma 3 has 33 million
_MOST_TOKENS = 1 << 31

Rows = NDArray[np.int64]
Values = NDArray[np.float32]


def with_tokens_of(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """The task with the rows of the base's tokens; tokens that it lacks get the base's row.

    Raises TallmasksError if the vocabularies differ and a tokenizer.json is missing or unreadable, or if transformers
    does not know which tensors have one row per token.
    """
    if type(task) is not Checkpoint:  # LoRAs and models of bundles have the base's tokens
        return task
    both = base.tensors.keys() & task.tensors.keys()
    same_shapes = all(base.tensors[name].shape == task.tensors[name].shape for name in both)
    if same_shapes and not {TOKENIZER} <= base.companions.keys() & task.companions.keys():
        return task
    mine, theirs = read_tokenizer(base), read_tokenizer(task)
    if same_shapes and mine.ids == theirs.ids:
        return task
    sizes = {name: _shape_of_rows(base, name)[0] for name in _token_tensors(base)[0] if name in task.tensors}
    return _view(task, theirs.ids, mine.ids, sizes, lambda name, numbers: _taken(base, name, numbers))


def with_all_tokens(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> tuple[Checkpoint, dict[str, Checkpoint]]:
    """Base and tasks with the base's tokens followed by the tokens that tasks added, in the order of the tasks.

    In the new base, an added token has the mean row of the tasks that have it; a task that lacks a token gets the new
    base's row. This is mergekit's ``tokenizer_source: union`` (tokenizer/embed.py). Raises TallmasksError if a
    tokenizer.json is missing, or if a task's vocabulary differs in more than added tokens.
    """
    for one in (base, *tasks.values()):
        if type(one) is not Checkpoint:
            raise TallmasksError(
                f"{one.title}: found a LoRA or a model of a bundle; --tokens union expects complete models. Merge or"
                " export it first"
            )
    tokenizer, theirs = read_tokenizer(base), {name: read_tokenizer(one) for name, one in tasks.items()}
    ids = dict(tokenizer.ids)
    added: list[dict[str, Any]] = []
    for name, other in theirs.items():
        if odd := [text for text in other.ids if text not in tokenizer.ids and text not in other.added]:
            raise TallmasksError(
                f"{name}: the vocabulary of {tasks[name].title} has other tokens than the base's: {name_some(odd)};"
                " expected the base's vocabulary plus added tokens. `--tokens base` drops the others"
            )
        for text, entry in other.added.items():
            if text not in ids:
                ids[text] = max(ids.values()) + 1
                added.append({**entry, "id": ids[text]})
    names, model = _token_tensors(base)
    names = [name for name in names if all(name in one.tensors for one in tasks.values())]
    if not names:
        raise TallmasksError("--tokens union: no tensor with one row per token is in every model; leave out the option")
    sizes = {name: max(_shape_of_rows(base, name)[0], max(ids.values()) + 1) for name in names}

    def mean(name: str, numbers: Rows) -> Values:
        total, count = np.zeros((len(numbers), _shape_of_rows(base, name)[1]), np.float32), np.zeros(len(numbers))
        for one, other in zip(tasks.values(), theirs.values(), strict=True):
            own = _rows(one, name, other.ids, ids, sizes[name])[numbers]
            total[own >= 0] += _taken(one, name, own[own >= 0])
            count += own >= 0
        return total / np.maximum(count, 1).astype(np.float32)[:, None]

    folder = TemporaryFolder()
    before, after = max(_shape_of_rows(base, name)[0] for name in names), max(sizes.values())
    changes: dict[str, Callable[[Any], Any]] = {
        TOKENIZER: lambda content: {**content, "added_tokens": [*(content.get("added_tokens") or []), *added]},
        "config.json": lambda config: replaced(config, [model.vocabulary_key], [before], after),
    }
    companions = dict(base.companions)
    for name in companions.keys() & changes:
        companions[name] = folder.path / name
        largest = _LARGEST if name == TOKENIZER else LARGEST_JSON
        companions[name].write_bytes(edited(base.companions[name], changes[name], largest))
    grown = _view(base, tokenizer.ids, ids, sizes, mean, companions=companions, indexes={}, folder=folder)
    for name, rows in grown.rows.items():  # keep the base's padding rows
        numbers = np.arange(_shape_of_rows(base, name)[0])
        padding = numbers[~np.isin(numbers, list(ids.values()))]
        rows[padding] = padding
    return grown, {
        name: _view(one, theirs[name].ids, ids, sizes, lambda tensor, numbers: _taken(grown, tensor, numbers))
        for name, one in tasks.items()
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class _WithTokens(Checkpoint):
    """A checkpoint with other rows in the tensors that have one row per token.

    ``rows``: the row in the file for each new row, or -1; ``lacking``: the values of such rows, float32 [k, width], by
    tensor and row numbers; ``folder``: keeps the temporary folder of new companions alive.
    """

    rows: Mapping[str, Rows]
    lacking: Callable[[str, Rows], Values]
    folder: TemporaryFolder | None = None

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        name = self.aliases.get(name, name)
        if name not in self.rows:
            return super().stored(name, start, stop)
        dtype, width = self.tensors[name].dtype, _shape_of_rows(self, name)[1]
        numbers = np.arange(start // width, -(-stop // width))
        own = self.rows[name][numbers]
        stored = self.arrays[name].reshape(-1, width)
        taken = np.ascontiguousarray(stored[np.maximum(own, 0)]).view(np.uint8).reshape(len(own), -1)
        if (absent := own < 0).any():
            values = narrowed(self.lacking(name, numbers[absent]), dtype, f"{self.title}: tensor {name}")
            taken[absent] = values.reshape(-1, taken.shape[1])
        nbytes, first = taken.shape[1] // width, int(numbers[0]) * width
        return taken.reshape(-1)[(start - first) * nbytes : (stop - first) * nbytes]


class Tokens(NamedTuple):
    """Token ids by text, and the entries of added tokens in tokenizer.json."""

    ids: dict[str, int]
    added: dict[str, dict[str, Any]]


def read_tokenizer(checkpoint: Checkpoint) -> Tokens:
    """Read the tokenizer.json. Raises TallmasksError if it is missing or unreadable."""
    if TOKENIZER not in checkpoint.companions:
        raise TallmasksError(
            f"{checkpoint.title}: {TOKENIZER} is missing. Save the tokenizer there with transformers' save_pretrained"
        )
    path = checkpoint.companions[TOKENIZER]
    with reading(path, "a vocabulary of texts with their ids, as transformers' save_pretrained writes it"):
        content = read_plain_json(path, _LARGEST)
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, list):  # unigram models have [text, score] pairs in order
            vocabulary = {text: number for number, (text, _) in enumerate(vocabulary)}
        added = {str(token["content"]): token for token in content.get("added_tokens") or []}
        numbered = {**vocabulary, **{text: token["id"] for text, token in added.items()}}
        ids = {str(text): number for text, number in numbered.items()}
        if odd := [number for number in ids.values() if type(number) is not int or not 0 <= number < _MOST_TOKENS]:
            raise ValueError(f"the id of a token is {short(odd[0])}")
    return Tokens(ids, added)


def _token_tensors(base: Checkpoint) -> tuple[list[str], LibraryModel]:
    """The base's tensors with one row per token. Raises TallmasksError if transformers does not know."""
    if (model := library_model(base)) is None or not model.token_tensors:
        raise TallmasksError(
            f"{base.title}: --tokens cannot be used, because transformers does not know which tensors have one row per"
            " token; expected the config.json of a transformers model with one vocabulary"
            f"{library_advice(base)}. Or resize the models with resize_token_embeddings and leave out --tokens"
        )
    return [name for name, own in model.names(base.tensors).items() if own in model.token_tensors], model


def _token_axis(shape: tuple[int, ...]) -> int:
    """The axis of the tokens: shapes are [n, width], [n] or [1, n]."""
    return next((axis for axis, length in enumerate(shape) if length != 1), len(shape) - 1)


def _shape_of_rows(one: Checkpoint, name: str) -> tuple[int, int]:
    """The number of rows, and the number of values per row."""
    shape = one.info(name).shape
    axis = _token_axis(shape)
    return shape[axis], math.prod(shape[axis + 1 :])


def _rows(one: Checkpoint, name: str, theirs: Mapping[str, int], ids: Mapping[str, int], size: int) -> Rows:
    """For each row of an embedding with the tokens ``ids``, the row of ``one``; -1 if it lacks the token."""
    rows, there = np.full(size, -1), _shape_of_rows(one, name)[0]
    for text, number in ids.items():
        if number < size and theirs.get(text, there) < there:
            rows[number] = theirs[text]
    return rows


def _view(
    one: Checkpoint,
    theirs: Mapping[str, int],
    ids: Mapping[str, int],
    sizes: Mapping[str, int],
    lacking: Callable[[str, Rows], Values],
    **changed: Any,
) -> _WithTokens:
    rows = {name: _rows(one, name, theirs, ids, size) for name, size in sizes.items()}
    infos = {}
    for name, size in sizes.items():
        dtype, shape = one.info(name)
        axis = _token_axis(shape)
        infos[name] = TensorInfo(dtype, (*shape[:axis], size, *shape[axis + 1 :]))
    facts = {field.name: getattr(one, field.name) for field in fields(Checkpoint)}
    return _WithTokens(**{**facts, "tensors": {**one.tensors, **infos}, **changed}, rows=rows, lacking=lacking)


def _taken(one: Checkpoint, name: str, numbers: Rows) -> Values:
    """Rows of a matrix, float32 [k, width]."""
    width = _shape_of_rows(one, name)[1]
    rows = [one.piece(name, number * width, (number + 1) * width) for number in numbers.tolist()]
    return np.array(rows, np.float32).reshape(-1, width)
