"""Read YAML files that people write, and write some, as YAML 1.2 like DVC."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning
from ruamel.yaml.nodes import Node, ScalarNode

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import open_plain

LARGEST = 1 << 20  # bytes
_LARGEST_EXPANDED = LARGEST  # characters and values if every alias is written out; nested ones can stand for billions


def read_yaml(path: Path) -> Any:
    """The value of a YAML file. Raises FileNotFoundError. Raises TallmasksError if it is not a regular file, too large,
    not valid YAML, has a key or an anchor twice, or has aliases that expand to more than `_LARGEST_EXPANDED`."""
    try:
        with open_plain(path) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise TallmasksError(f"{path} is too large: expected at most {LARGEST:,} bytes")
        with warnings.catch_warnings():
            warnings.simplefilter("error", ReusedAnchorWarning)
            return _yaml().load(content.decode("utf-8-sig"))
    except (FileNotFoundError, TallmasksError):
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
    except Exception as error:  # the parser raises any type, for example KeyError for `!!bool x`
        where, problem = "", f"cannot be read as YAML ({error})"
    raise TallmasksError(f"{path}{where}: {' '.join(problem.split())[:200]}")


def yaml_text(content: dict[str, Any]) -> str:
    """A mapping as YAML, with its keys in their order."""
    writer, text = YAML(typ="safe", pure=True), io.StringIO()
    writer.default_flow_style, writer.sort_base_mapping_type_on_output, writer.width = False, False, 1000  # type: ignore[assignment]
    writer.dump(content, text)
    return text.getvalue()


def scalar(text: str) -> Any:
    """The value of unquoted `text` in YAML: null, a number, a boolean, or the text itself."""
    if text.strip() in ("", "~", "null"):
        return None
    try:
        value = _yaml().load(text)
    except Exception:  # as above
        return text
    return value if isinstance(value, bool | int | float) else text


class _Constructor(SafeConstructor):
    """Also refuses aliases that expand without end, duplicate keys beside `<<`, and lone surrogates."""

    def construct_document(self, node: Any) -> Any:
        if _expanded(node, {}) > _LARGEST_EXPANDED:
            problem = f"its aliases expand to more than {_LARGEST_EXPANDED:,} characters and values; write them out"
            raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return super().construct_document(node)

    def construct_scalar(self, node: Any) -> Any:
        text = super().construct_scalar(node)
        str(text).encode()  # raises for a lone surrogate, which no file can hold
        return text

    def flatten_mapping(self, node: Any) -> None:
        written = [str(key.value) for key, _ in node.value]
        if getattr(node, "merge", None) is None and len(set(written)) < len(written):
            twice = next(key for key, _ in node.value if written.count(str(key.value)) > 1)
            raise MarkedYAMLError(problem=f"duplicate key {twice.value!r}", problem_mark=twice.start_mark)
        super().flatten_mapping(node)


def _expanded(node: Node, sizes: dict[int, float]) -> float:
    """The characters and values of a node with every alias written out; infinite for an alias inside its own value.
    ``sizes``: those of the nodes that were visited, by id."""
    if isinstance(node, ScalarNode):
        return 1 + len(node.value)
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        parts = (part for item in node.value for part in (item if isinstance(item, tuple) else (item,)))
        sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]


def _yaml() -> YAML:
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    return reader
