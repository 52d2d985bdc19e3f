"""Read YAML files that people write, as YAML 1.2 like DVC."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import open_plain

LARGEST = 1 << 17  # bytes; the shipped params.yaml has 10,000
_MOST_MERGED = 10_000  # keys of a mapping; nested references can produce billions


def read_yaml(path: Path) -> Any:
    """The value of a YAML file. Raises FileNotFoundError. Raises TallmasksError if it is not a regular file, too large,
    not valid YAML, or has a key or an anchor twice."""
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
    """Also refuses duplicate keys beside `<<`, which ruamel accepts, and lone surrogates."""

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
        if len(node.value) > _MOST_MERGED:
            raise MarkedYAMLError(problem=f"a mapping has more than {_MOST_MERGED} keys", problem_mark=node.start_mark)


def _yaml() -> YAML:
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    return reader
