"""Read YAML files that people write, and write some, as YAML 1.2 like DVC."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning
from ruamel.yaml.events import AliasEvent

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import open_plain

LARGEST = 1 << 20  # bytes


def read_foreign_yaml(path: Path) -> Any:
    """As `read_yaml`, for a file that somebody else may have written. Also raises TallmasksError for a file larger than
    `LARGEST`, and for aliases, since nested ones can stand for billions of values."""
    with open_plain(path) as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise TallmasksError(f"{path} is too large: expected at most {LARGEST:,} bytes")
    return _value(path, text, allows_aliases=False)


def read_yaml(path: Path) -> Any:
    """The value of a YAML file. Raises FileNotFoundError. Raises TallmasksError if it is not a regular file, not valid
    YAML, or has a key or an anchor twice."""
    with open_plain(path) as file:
        return _value(path, file.read(), allows_aliases=True)


def _value(path: Path, text: bytes, allows_aliases: bool) -> Any:
    try:
        decoded = text.decode("utf-8-sig")
        if not allows_aliases:
            for event in _yaml().parse(decoded):
                if isinstance(event, AliasEvent):
                    raise MarkedYAMLError(problem="aliases are not read; write them out", problem_mark=event.start_mark)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ReusedAnchorWarning)
            return _yaml().load(decoded)
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
    """Also refuses duplicate keys beside `<<`."""

    def flatten_mapping(self, node: Any) -> None:
        written = [str(key.value) for key, _ in node.value]
        if getattr(node, "merge", None) is None and len(set(written)) < len(written):
            twice = next(key for key, _ in node.value if written.count(str(key.value)) > 1)
            raise MarkedYAMLError(problem=f"duplicate key {twice.value!r}", problem_mark=twice.start_mark)
        super().flatten_mapping(node)


def _yaml() -> YAML:
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    return reader
