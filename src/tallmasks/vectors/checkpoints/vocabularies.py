"""Models with different vocabularies: rows are matched by the token's text in the tokenizer. transformers determines
which tensors have one row per token: embeddings, the output layer and its bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, name_some, short, warn
from tallmasks.io.plain_files import LARGEST_JSON, read_plain_json, reading
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.io.tensor_files import TensorInfo
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, sha256_of
from tallmasks.vectors.checkpoints.float_bytes import narrowed
from tallmasks.vectors.checkpoints.folders import TOKENIZER, VOCABULARIES, matches, part_prefix
from tallmasks.vectors.checkpoints.known_tensors import known_tensors, library_advice, library_tokens
from tallmasks.vectors.checkpoints.planned_files import edited, replaced

_LARGEST = 1 << 26  # bytes of a tokenizer.json; Gemma 3 has 33 million
_MOST_TOKENS = 1 << 31

Rows = NDArray[np.int64]
Values = NDArray[np.float32]


def with_tokens_of(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """The task with the rows of the base's tokens; tokens that it lacks get the base's row.

    Raises TallmasksError if a tokenizer is missing or unreadable, if the rows of a LoRA or of a bundle's model have
    other tokens, or if transformers does not know which tensors have one row per token.
    """
    is_plain = type(task) is Checkpoint
    if not is_plain and not vocabulary_digests(task):  # it has the base's tokenizer
        return task
    both = base.tensors.keys() & task.tensors.keys()
    same_shapes = all(base.tensors[name].shape == task.tensors[name].shape for name in both)
    if same_shapes and (digests := vocabulary_digests(base)) and digests == vocabulary_digests(task):
        return task
    mine, theirs = read_tokenizer(base), read_tokenizer(task)
    if not is_plain:
        if clash := next(clashes({base.title: mine.ids, task.title: theirs.ids}), None):
            raise TallmasksError(
                f"{task.title}: found other tokens than the base's ({clash}) in a LoRA or a model of a bundle; tokens:"
                " base expects a complete model. Merge or export it first"
            )
        return task
    if same_shapes and mine.ids == theirs.ids:
        return task
    sizes = {name: _shape_of_rows(base, name)[0] for name in _token_tensors(base) if name in task.tensors}
    return _view(task, theirs.ids, mine.ids, sizes, lambda name, numbers: _taken(base, name, numbers))


def with_all_tokens(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> tuple[Checkpoint, dict[str, Checkpoint]]:
    """Base and tasks with the base's tokens followed by the tokens that tasks added, in the order of the tasks.

    In the new base, an added token has the mean row of the tasks that have it; a task that lacks a token gets the new
    base's row. Added tokens for which no model has a row are left out, with a warning. This is mergekit's
    ``tokenizer_source: union`` (tokenizer/embed.py). Raises TallmasksError if a tokenizer.json is missing, if a task's
    vocabulary differs in more than added tokens, or if no model has a row for a token of the base before added ones.
    """
    for one in (base, *tasks.values()):
        if type(one) is not Checkpoint:
            raise TallmasksError(
                f"{one.title}: found a LoRA or a model of a bundle; `tokens: union` expects complete models. Merge or"
                " export it first"
            )
        if TOKENIZER not in one.companions:
            raise _unreadable(one)
    tokenizer, theirs = read_tokenizer(base), {name: read_tokenizer(one) for name, one in tasks.items()}
    token_tensors = _token_tensors(base)
    names = [name for name in token_tensors if all(name in one.tensors for one in tasks.values())]
    if not names:
        raise TallmasksError("tokens: union: no tensor with one row per token is in every model; leave out the option")
    with_rows = {
        text
        for one, tokens in zip((base, *tasks.values()), (tokenizer, *theirs.values()), strict=True)
        for text, number in tokens.ids.items()
        if all(number < _shape_of_rows(one, name)[0] for name in names)
    }
    ids = dict(tokenizer.ids)
    added: list[dict[str, Any]] = []
    without_rows: dict[str, None] = {}
    for name, other in theirs.items():
        if odd := [text for text in other.ids if text not in tokenizer.ids and text not in other.added]:
            raise TallmasksError(
                f"{name}: the vocabulary of {tasks[name].title} has other tokens than the base's: {name_some(odd)};"
                " expected the base's vocabulary plus added tokens. `tokens: base` drops the others"
            )
        for text, entry in other.added.items():
            if text not in with_rows and text not in ids:
                without_rows[text] = None
            elif text not in ids:
                ids[text] = max(ids.values()) + 1
                added.append({**entry, "id": ids[text]})
    if without_rows:
        warn(
            f"tokens: union: no model has a row for {name_some(map(short, without_rows))}, so they are left out"
            " of the result's tokenizer. To keep them, call resize_token_embeddings on the task's model first"
        )
    filled = {ids[text] for text in with_rows & ids.keys()}
    first, last = min(_shape_of_rows(base, name)[0] for name in names), max(filled, default=-1)
    if sum(number >= first for number in filled) < last + 1 - first:
        lost = [short(text) for text, number in ids.items() if number < last and text not in with_rows]
        raise TallmasksError(
            f"{base.title}: no model has a row for some ids of its tokenizer, before the added tokens"
            f" ({name_some(lost) or 'ids without a token'}). Call resize_token_embeddings(len(tokenizer)) on the base"
            " and save it again"
        )
    sizes = {name: max(_shape_of_rows(base, name)[0], last + 1) for name in names}

    def mean(name: str, numbers: Rows) -> Values:
        total, count = np.zeros((len(numbers), _shape_of_rows(base, name)[1]), np.float32), np.zeros(len(numbers))
        for one, other in zip(tasks.values(), theirs.values(), strict=True):
            stored_rows = _rows(one, name, other.ids, ids, sizes[name])[numbers]
            total[stored_rows >= 0] += _taken(one, name, stored_rows[stored_rows >= 0])
            count += stored_rows >= 0
        return total / np.maximum(count, 1).astype(np.float32)[:, None]

    folder = TemporaryFolder()
    before, after = max(_shape_of_rows(base, name)[0] for name in names), max(sizes.values())
    changes: dict[str, Callable[[Any], Any]] = {
        TOKENIZER: lambda content: {**content, "added_tokens": [*(content.get("added_tokens") or []), *added]},
        "config.json": lambda config: replaced(config, [token_tensors[names[0]]], [before], after),
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

    def raw_bytes(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        name = self.aliases.get(name, name)
        if name not in self.rows:
            return super().raw_bytes(name, start, stop)
        dtype, width = self.tensors[name].dtype, _shape_of_rows(self, name)[1]
        numbers = np.arange(start // width, -(-stop // width))
        stored_rows = self.rows[name][numbers]
        stored = self.arrays[name].reshape(-1, width)
        taken = np.ascontiguousarray(stored[np.maximum(stored_rows, 0)]).view(np.uint8).reshape(len(stored_rows), -1)
        if (absent := stored_rows < 0).any():
            values = narrowed(self.lacking(name, numbers[absent]), dtype, f"{self.title}: tensor {name}")
            taken[absent] = values.reshape(-1, taken.shape[1])
        nbytes, first = taken.shape[1] // width, int(numbers[0]) * width
        return taken.reshape(-1)[(start - first) * nbytes : (stop - first) * nbytes]


class Tokens(NamedTuple):
    """Token ids by text, and the entries of added tokens in tokenizer.json."""

    ids: dict[str, int]
    added: dict[str, dict[str, Any]]


def read_tokenizer(checkpoint: Checkpoint, folder: str = "") -> Tokens:
    """Read the tokenizer in a subfolder such as `tokenizer/`: its tokenizer.json, else transformers reads its files.

    Without a tokenizer.json, ``added`` is empty, and tokens beyond the configuration's vocabulary size are left out,
    such as those that transformers adds itself. Raises TallmasksError if the tokenizer is missing or unreadable.
    """
    files = _files_in(checkpoint, folder)
    if TOKENIZER not in files:
        if (ids := library_tokens(files)) is None:
            raise _unreadable(checkpoint, folder)
        size = checkpoint.config.get("vocab_size")
        size = size if isinstance(size, int) else math.inf
        return Tokens({text: number for text, number in ids.items() if number < size}, {})
    with reading(files[TOKENIZER], "a vocabulary of texts with their ids, as transformers' save_pretrained writes it"):
        content = read_plain_json(files[TOKENIZER], _LARGEST)
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, list):  # unigram models have [text, score] pairs in order
            vocabulary = {text: number for number, (text, _) in enumerate(vocabulary)}
        added = {str(token["content"]): token for token in content.get("added_tokens") or []}
        tokens = {**vocabulary, **{text: token["id"] for text, token in added.items()}}
        ids = {str(text): number for text, number in tokens.items()}
        if odd := [number for number in ids.values() if type(number) is not int or not 0 <= number < _MOST_TOKENS]:
            raise ValueError(f"the id of a token is {short(odd[0])}")
    return Tokens(ids, added)


def _unreadable(checkpoint: Checkpoint, folder: str = "") -> TallmasksError:
    found = name_some(vocabulary_digests(checkpoint, folder)) or "no tokenizer"
    return TallmasksError(
        f"{checkpoint.title}: found {found}; expected a readable {folder}{TOKENIZER}, to match rows by token. Save the"
        " tokenizer there with transformers' save_pretrained"
    )


def _files_in(checkpoint: Checkpoint, folder: str) -> dict[str, Path]:
    companions = checkpoint.companions.items()
    return {name.removeprefix(folder): path for name, path in companions if part_prefix(name) == folder}


def vocabulary_digests(checkpoint: Checkpoint, folder: str = "") -> dict[str, str]:
    """The sha256 of the files that determine the token ids, by name; empty if there is no tokenizer."""
    files = _files_in(checkpoint, folder)
    names = [TOKENIZER] if TOKENIZER in files else [name for name in files if matches(name, VOCABULARIES)]
    return {name: sha256_of(files[name]) for name in names}


def clashes(ids: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Rows with different tokens, as text; ``ids``: token ids by text, by the name of the model."""
    texts: dict[int, dict[str, str]] = {}
    for name, of_model in ids.items():
        for text, row in of_model.items():
            texts.setdefault(row, {}).setdefault(text, name)
    for row, of_row in sorted(texts.items()):
        if len(of_row) > 1:
            yield f"row {row} is {' and '.join(f'{short(text)} in {name}' for text, name in [*of_row.items()][:2])}"


def _token_tensors(base: Checkpoint) -> dict[str, str]:
    """The base's tensors with one row per token, with the key in config.json of their number of rows. Raises
    TallmasksError if transformers does not know."""
    known = known_tensors(base.names, base)
    if not (keys := {name: one.vocabulary_key for name, one in known.items() if one.vocabulary_key}):
        raise TallmasksError(
            f"{base.title}: tokens is unusable, because transformers does not know which tensors have one row per"
            " token; expected the config.json of a transformers model with one vocabulary"
            f"{library_advice(base)}. Or resize the models with resize_token_embeddings and leave out tokens"
        )
    return {name: key for name, key in keys.items() if name in base.tensors}


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
    attributes = {field.name: getattr(one, field.name) for field in fields(Checkpoint)}
    return _WithTokens(**{**attributes, "tensors": {**one.tensors, **infos}, **changed}, rows=rows, lacking=lacking)


def _taken(one: Checkpoint, name: str, numbers: Rows) -> Values:
    """Rows of a matrix, float32 [k, width]."""
    width = _shape_of_rows(one, name)[1]
    rows = [one.piece(name, number * width, (number + 1) * width) for number in numbers.tolist()]
    return np.array(rows, np.float32).reshape(-1, width)
