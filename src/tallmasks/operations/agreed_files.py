"""Small files that say how a model is used, such as generation_config.json: a merged model has the base's, with the
values on which all tasks agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from tallmasks.errors import grouped_warnings, warn
from tallmasks.io.plain_files import read_plain_json
from tallmasks.io.tensor_files import name_some
from tallmasks.operations.input_warnings import changes
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.folders import matches
from tallmasks.vectors.checkpoints.planned_files import edited
from tallmasks.vectors.checkpoints.vocabularies import vocabulary_digests

_OF_TOKENIZERS = ("tokenizer_config.json", "chat_template.json", "chat_template.jinja")
_FILES = (
    "generation_config.json", "*processor_config.json", "sentence_*_config.json", "config_sentence_transformers.json",
    *_OF_TOKENIZERS,
)  # fmt: skip
_IN_TOKENIZER_CONFIG = ("chat_template", "eos_token")
"""The other fields of tokenizer_config.json belong to the vocabulary."""
_VERSION = "__version__"  # of sentence-transformers


class AgreedFile(NamedTuple):
    """The content of a file, and the names of the fields that are not the base's; empty for a whole file."""

    content: bytes
    fields: list[str]


def agreed_files(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> dict[str, AgreedFile]:
    """The files of a merged model that differ from the base's, by name."""
    agreed = {}
    for name, mine, theirs in _files(base, tasks):
        fields, (first, *_) = _agreed_fields(mine, theirs), tasks.values()
        if not fields or not _is_possible(name, base, tasks):
            continue
        if name in base.companions and name.endswith(".json"):
            values = {key: theirs[0][key] for key in fields}
            agreed[name] = AgreedFile(edited(base.companions[name], partial(_updated, values)), fields)
        elif all(one.keys() == {*fields} for one in theirs):
            agreed[name] = AgreedFile(first.companions[name].read_bytes(), [])
    return agreed


def _updated(values: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    return {**content, **values}


def warn_of_files(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> None:
    """Warn about values of such files that differ between models, and for which a merged model has the base's."""
    with grouped_warnings():
        for name, mine, theirs in _files(base, tasks):
            agreed = _agreed_fields(mine, theirs) if _is_possible(name, base, tasks) else []
            for task, one in zip(tasks, theirs, strict=True):
                every = [(key, other[key]) for other in (mine, *theirs) for key in one.keys() & other.keys()]
                odd = {key for key, value in every if changes(key, value, one[key])}
                if shown := sorted(odd.difference(agreed)):
                    in_fields = f" in {name_some(shown, 6)}" if shown != [""] else ""
                    warn(f"{name} differs from that of other models{in_fields}; the result keeps the base's", task)


def _files(
    base: Checkpoint, tasks: Mapping[str, Checkpoint]
) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """The name of each file that some model has, and the fields of the base's and of each task's."""
    names = {name for one in (base, *tasks.values()) for name in one.companions}
    for name in sorted(name for name in names if matches(name.rpartition("/")[2], _FILES)):
        yield name, _fields(base, name), [_fields(one, name) for one in tasks.values()]


def _fields(model: Checkpoint, name: str) -> dict[str, Any]:
    """The fields of a file; that of a file that is no JSON object has an empty name."""
    fields: dict[str, Any] = {}
    if path := model.companions.get(name):
        with suppress(OSError, ValueError):  # an error is reported when the model is loaded
            content = read_plain_json(path) if name.endswith(".json") else {"": path.read_text()}
            fields = content if isinstance(content, dict) else {"": content}
    if name.rpartition("/")[2] == "tokenizer_config.json":
        return {key: fields[key] for key in _IN_TOKENIZER_CONFIG if key in fields}
    return {key: value for key, value in fields.items() if key != _VERSION}


def _agreed_fields(mine: Mapping[str, Any], theirs: list[dict[str, Any]]) -> list[str]:
    first, *others = theirs
    return sorted(
        key
        for key, value in first.items()
        if changes(key, mine.get(key), value) and all(key in one and one[key] == value for one in others)
    )


def _is_possible(name: str, base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> bool:
    """A template and an end token of a tokenizer need its vocabulary."""
    if name.rpartition("/")[2] not in _OF_TOKENIZERS:
        return True
    mine = vocabulary_digests(base)
    return all(vocabulary_digests(one) == mine for one in tasks.values())
