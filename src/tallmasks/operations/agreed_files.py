"""Small files that say how a model is used, such as generation_config.json: a merged model has the base's, with the
values on which all tasks agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from tallmasks.errors import grouped_warnings, name_some, warn
from tallmasks.io.plain_files import read_plain_json
from tallmasks.operations.input_warnings import changes
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.folders import matches, part_prefix
from tallmasks.vectors.checkpoints.planned_files import edited
from tallmasks.vectors.checkpoints.vocabularies import vocabulary_digests

_CONFIG, _TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_OF_TOKENIZERS = (_CONFIG, "chat_template.json", _TEMPLATE)
_FILES = (
    "generation_config.json", "*processor_config.json", "sentence_*_config.json", "config_sentence_transformers.json",
    *_OF_TOKENIZERS,
)  # fmt: skip
_IN_TOKENIZER_CONFIG = ("chat_template", "eos_token")
"""The other fields of tokenizer_config.json belong to the vocabulary."""
_VERSION = "__version__"  # of sentence-transformers
Fields = Mapping[str, Any] | None
"""The values of a file by field; None if it is missing or unreadable."""


class AgreedFile(NamedTuple):
    """The content of a file, and the names of the fields that are not the base's; empty for a whole file."""

    content: bytes
    fields: list[str]


def agreed_files(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> dict[str, AgreedFile]:
    """The files of a merged model that differ from the base's, by name."""
    agreed = {}
    for name, mine, theirs in _files(base, tasks):
        fields = _agreed_fields(mine, theirs) if _is_possible(name, base, tasks) else []
        if not fields or theirs[0] is None:
            continue
        if mine is not None and not any("" in one for one in (mine, theirs[0])):
            agreed[name] = AgreedFile(edited(base.companions[name], partial(_updated, fields, theirs[0])), fields)
        elif all(_agreed_fields(None, [one]) == _agreed_fields(None, theirs) for one in theirs):
            path = next(iter(tasks.values())).companions.get(name)
            text = path.read_bytes() if path else theirs[0][""].encode(errors="replace")
            agreed[name] = AgreedFile(text, [])
    return agreed


def _updated(fields: Sequence[str], theirs: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in content.items() if key not in fields}
    return others | {key: theirs[key] for key in fields if key in theirs}


def warn_of_files(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> None:
    """Warn about values of such files that differ between models, and for which a merged model has the base's."""
    agreed = agreed_files(base, tasks)
    with grouped_warnings():
        for name, mine, theirs in _files(base, tasks):
            if name in agreed and not agreed[name].fields:
                continue
            taken = agreed[name].fields if name in agreed else []
            every = [one for one in (mine, *theirs) if one is not None]
            for task, one in zip(tasks, theirs, strict=True):
                odd = {key for other in every for key in _differing(one, other)} if one is not None else set()
                if shown := sorted(odd.difference(taken)):
                    in_fields = f" in {name_some(shown, 6)}" if shown != [""] else ""
                    warn(f"{name} differs from that of other models{in_fields}; the result keeps the base's", task)


def _files(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> Iterator[tuple[str, Fields, list[Fields]]]:
    """The name of each file that some model has, and the fields of the base's and of each task's; none if the base is
    not a folder."""
    names = {name for one in (base, *tasks.values()) for name in one.companions} if base.is_folder else set()
    for name in sorted(name for name in names if matches(name.rpartition("/")[2], _FILES)):
        yield name, _fields(base, name), [_fields(one, name) for one in tasks.values()]


def _fields(model: Checkpoint, name: str) -> Fields:
    """The fields of a file; that of a file that is no JSON object has an empty name. transformers reads a template from
    its own file, or else from tokenizer_config.json."""
    file = name.rpartition("/")[2]
    if (path := model.companions.get(name)) is None:
        beside = _fields(model, f"{part_prefix(name)}{_CONFIG}") if file == _TEMPLATE else None
        template = (beside or {}).get("chat_template")
        return {"": template} if isinstance(template, str) else None
    try:
        content = read_plain_json(path) if name.endswith(".json") else path.read_text()
    except (OSError, ValueError):  # an error is reported when the model is loaded
        return None
    fields = content if isinstance(content, dict) else {"": content}
    if file == _CONFIG:
        return {key: fields[key] for key in _IN_TOKENIZER_CONFIG if key in fields}
    return {key: value for key, value in fields.items() if key != _VERSION}


def _agreed_fields(mine: Fields, theirs: Sequence[Fields]) -> list[str]:
    """The fields in which all tasks have another value than the base, or none; empty if a task lacks the file."""
    readable = [one for one in theirs if one is not None]
    if len(readable) < len(theirs):
        return []
    first, *others = readable
    fields = _differing(first, mine or {})
    return sorted(key for key in fields if all(one.get(key) == first.get(key) for one in others))


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    return {key for key in {*one, *other} if changes(key, other.get(key), one.get(key))}


def _is_possible(name: str, base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> bool:
    """A template and an end token of a tokenizer need its vocabulary."""
    if name.rpartition("/")[2] not in _OF_TOKENIZERS:
        return True
    mine = vocabulary_digests(base, part_prefix(name))
    return all(vocabulary_digests(one, part_prefix(name)) == mine for one in tasks.values())
