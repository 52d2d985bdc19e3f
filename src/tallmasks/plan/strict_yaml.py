"""YAML files that people write by hand, read strictly: nothing in them is evaluated, guessed or overwritten in silence.

Beyond `yaml.SafeLoader`, which constructs plain values only, this refuses in one line, with the file and the line:
what is no plain file or too large, text that is not UTF-8, keys that are written twice or are no text, tags, dates and
other types, numbers that readers of YAML take for different ones (`010`, `0x1f`, `1:30`), nesting without end,
references to themselves, and references that stand for more values than anybody means.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, NoReturn

import yaml

from tallmasks.store.errors import TallmasksError

LARGEST = 1 << 20  # bytes; the shipped params.yaml has 6,500
DEEPEST = 24  # levels; the shipped params.yaml has 5
MOST = 20_000  # values, with every reference in its place; the shipped params.yaml has some 800

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_KNOWN = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map", "merge")}
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_AS_DVC_WRITES = re.compile(r"[-+]?[0-9]e[-+][0-9]{2,3}$")


def read_yaml(path: Path) -> Any:
    """The value that a YAML file holds: mappings, lists, texts, numbers, true, false and null.

    Raises:
        FileNotFoundError: there is no such file.
        TallmasksError: what this module refuses, and what is no YAML.
    """
    text = _text(path)
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise TallmasksError(f"{path}, line {line}: found the character {error.character:#x}: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise TallmasksError(f"{path}, line {line}: {' '.join(said.split())}") from None


def scalar(text: str) -> Any:
    """What an unquoted `text` stands for in such a file, a number say; the text itself where it is nothing else."""
    tag = _Loader("").resolve(yaml.ScalarNode, text, (True, False))
    if tag not in (f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null")):
        return text
    try:
        return _Loader(text).get_single_data()
    except yaml.YAMLError:
        return text


def _text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not be waited for
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TallmasksError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TallmasksError(f"{path}: expected a plain file, found a folder, a pipe or a device in its place")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(content) > LARGEST:
        raise TallmasksError(f"{path}: larger than {LARGEST:,} bytes, which no such file is")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TallmasksError(
            f"{path}, line {line}: found the byte {content[error.start]:#x}, expected UTF-8: save it as that"
        ) from None


class _Loader(yaml.SafeLoader):
    """Checks every node where it is composed, before anything is constructed from it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values = 0
        self._size: dict[int, int] = {}  # of the nodes with an anchor, by identity: their values, references in place
        self._open: set[str] = set()  # anchors of the nodes that are being composed

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self._open:
                _refuse(event, f"*{event.anchor} refers to itself")
            node = super().compose_node(parent, index)
            self._add(self._size[id(node)], event)
            return node
        if event.tag is not None:
            _refuse(event, f"found the tag {event.tag!r}, expected plain values; leave it out")
        before = self._values
        self._depth += 1
        if self._depth > DEEPEST:
            _refuse(event, f"nested more than {DEEPEST} levels deep")
        self._add(1, event)
        anchor = event.anchor
        if anchor is not None:
            self._open.add(anchor)
        node = super().compose_node(parent, index)
        if anchor is not None:
            self._open.discard(anchor)
            self._size[id(node)] = self._values - before
        self._depth -= 1
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (f"{_TAG}str", _MERGE):
                written = f" {key.value}" if isinstance(key, yaml.ScalarNode) else ""
                _refuse(key, f"the key{written} is no text; put it into quotation marks")
            if key.value in lines:
                _refuse(key, f"the key {key.value!r} stands in line {lines[key.value]} already; keep one of the two")
            lines[key.value] = key.start_mark.line + 1
        return node

    def _add(self, values: int, event: yaml.Event) -> None:
        self._values += values
        if self._values > MOST:
            _refuse(event, f"with its references in place, the file stands for more than {MOST:,} values")


# DVC reads params.yaml as YAML 1.2, and `dvc exp run -S` writes 0.00001 as 1e-05, which is a text in YAML 1.1
_Loader.add_implicit_resolver(f"{_TAG}float", _AS_DVC_WRITES, list("-+0123456789"))


def _check_scalar(node: yaml.ScalarNode) -> None:
    if node.tag not in _KNOWN:
        kind = node.tag.removeprefix(_TAG)
        _refuse(
            node, f"found {node.value!r}, which YAML reads as a {kind}; put it into quotation marks if it is a text"
        )
    number = node.tag in (f"{_TAG}int", f"{_TAG}float")
    if number and (":" in node.value or (node.tag == f"{_TAG}int" and not _DECIMAL.fullmatch(node.value))):
        _refuse(node, f"found {node.value}, which is not the same number to every reader of YAML; write it in decimals")
    if number and len(node.value) > 400:
        _refuse(node, f"found a number of {len(node.value)} digits, which cannot be meant")


def _refuse(where: Any, problem: str) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=where.start_mark)
