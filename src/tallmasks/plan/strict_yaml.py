"""YAML files that people write by hand, read strictly, as YAML 1.2 like DVC."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from ruamel.yaml.reader import ReaderError

from tallmasks.store.errors import TallmasksError
from tallmasks.store.plain_files import open_plain

LARGEST = 1 << 20  # bytes; the shipped params.yaml has 10,000
DEEPEST = 24  # levels; the shipped params.yaml has 5
MOST = 20_000  # values, with every reference in its place; the shipped params.yaml has some 800


def read_yaml(path: Path) -> Any:
    """The value of a YAML file: mappings, lists, texts, numbers, true, false and null.

    Raises FileNotFoundError, and TallmasksError where it is no plain file, too large or deep, no UTF-8 or no YAML.
    Also for a key that is there twice.
    """
    text = _text(path)
    try:
        _check_events(text)
        return _yaml().load(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise TallmasksError(f"{path}, line {line}: found the character {error.character:#x}: {error.reason}") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise TallmasksError(f"{path}, line {mark.line + 1 if mark else 1}: {' '.join(problem.split())}") from None
    except YAMLError as error:
        raise TallmasksError(f"{path}: {' '.join(str(error).split())[:200]}") from None


def scalar(text: str) -> Any:
    """What an unquoted `text` means in such a file: null, a number, true or false, or the text itself."""
    if text.strip() in ("", "~", "null"):
        return None
    try:
        value = _yaml().load(text)
    except (YAMLError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float) else text


class _Constructor(SafeConstructor):
    """Refuses a key that is there twice, also beside `<<`, where ruamel lets the last one count."""

    def flatten_mapping(self, node: Any) -> None:
        if getattr(node, "merge", None) is None:
            lines: dict[str, int] = {}
            for key, _ in node.value:
                written = str(key.value)
                if written in lines:
                    _refuse(key, f"the key {written!r} stands in line {lines[written]} already; keep one of the two")
                lines[written] = key.start_mark.line + 1
        super().flatten_mapping(node)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # a number of 5,000 digits, or of none
            _refuse(node, f"found {node.value!s:.40}: {error}")


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)  # as in JSON


def _yaml() -> YAML:
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    return reader


def _check_events(text: str) -> None:
    """Refuse tags, deep nesting and references that multiply, before anything is built of them."""
    values, sizes = 0, dict[str | None, int]()
    begun: list[tuple[str | None, int]] = []  # of the collections that are open: anchor, and values before them
    for event in _yaml().parse(text):
        if isinstance(event, AliasEvent):
            if event.anchor in (anchor for anchor, _ in begun):
                _refuse(event, f"*{event.anchor} refers to itself")
            values += sizes.get(event.anchor, 0)
        elif isinstance(event, CollectionStartEvent):
            begun.append((event.anchor, values))
            values += 1
        elif isinstance(event, CollectionEndEvent):
            anchor, before = begun.pop()
            sizes[anchor] = values - before
        elif isinstance(event, ScalarEvent):
            values += 1
        if getattr(event, "tag", None) is not None:
            _refuse(event, f"found the tag {event.tag!r}, expected plain values; leave it out")
        if len(begun) > DEEPEST:
            _refuse(event, f"nested more than {DEEPEST} levels deep")
        if values > MOST:
            _refuse(event, f"with its references in place, the file stands for more than {MOST:,} values")


def _text(path: Path) -> str:
    try:
        with open_plain(path) as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TallmasksError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > LARGEST:
        raise TallmasksError(f"{path}: larger than {LARGEST:,} bytes, which no such file is")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TallmasksError(
            f"{path}, line {line}: found the byte {content[error.start]:#x}, expected UTF-8: save it as that"
        ) from None


def _refuse(where: Any, problem: str) -> NoReturn:
    raise MarkedYAMLError(problem=problem, problem_mark=where.start_mark)
