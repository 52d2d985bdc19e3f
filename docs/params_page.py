"""Write docs/params.md, every key of params.yaml, from `reproduction.plan.params_model`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduction.plan.params_model import ParamsFile

_KINDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "array": "list",
    "object": "mapping",
    "boolean": "true or false",
    "null": "nothing",
}
_BOUNDS = (("from", "minimum"), ("above", "exclusiveMinimum"), ("to", "maximum"), ("below", "exclusiveMaximum"))

HEAD = """# Keys of params.yaml

Written by `python docs/params_page.py`. Keys with * are required. Other keys are refused. The comments in
[`params.yaml`](../params.yaml) explain the settings that people change most, and it has an example of nearly every key.
"""


def page() -> str:
    """The whole page: the file's own keys, and each kind of keys with values below."""
    schema = ParamsFile.model_json_schema()
    parts = {"The file": schema, **schema["$defs"]}
    parts["ClipEntry"] = _beyond(parts["ClipEntry"], parts["ModelEntry"], "A model with `family: clip`; the rest as")
    parts["ClipFinetuning"] = _beyond(parts["ClipFinetuning"], parts["Finetuning"], "As")
    shown = {name: part for name, part in parts.items() if "properties" in part}
    return HEAD + "".join(_list(name, part) for name, part in shown.items())


def _beyond(part: Mapping[str, Any], base: Mapping[str, Any], words: str) -> dict[str, Any]:
    """What a part has in another form than the part that it is built on."""
    keys = {
        key: value
        for key, value in part["properties"].items()
        if value != base["properties"].get(key) or (key in part["required"]) != (key in base["required"])
    }
    return {**part, "properties": keys, "description": f"{words} [{base['title']}](#{base['title'].lower()})."}


def _list(name: str, part: Mapping[str, Any]) -> str:
    lines = [f"\n## {name}\n"]
    if text := part.get("description"):
        lines.append(f"{text[0].upper()}{text[1:].removesuffix('.')}.\n")
    for key, value in part["properties"].items():
        needed = "*" if key in part.get("required", ()) else ""
        links = [f"[{title}](#{title.lower()})" for title in dict.fromkeys(re.findall(r"#/\$defs/(\w+)", str(value)))]
        kinds = [link for link in links if "#setting" not in link]
        lines.append(f"- `{key}`{needed}: {_allowed(value)}{', see ' * bool(kinds)}{', '.join(kinds)}")
    return "\n".join(lines) + "\n"


def _allowed(part: Mapping[str, Any]) -> str:
    """What a part of a JSON schema allows, in words."""
    if "enum" in part:
        words = f"one of {', '.join(map(str, part['enum']))}"
    elif "anyOf" in part or "oneOf" in part:
        words = " or ".join(dict.fromkeys(map(_allowed, part.get("anyOf", part.get("oneOf", ())))))
    elif "const" in part:
        words = str(part["const"])
    else:
        words = _KINDS.get(part.get("type", "object" if "$ref" in part else ""), "")
    bounds = " ".join(f"{word} {_number(part[key])}" for word, key in _BOUNDS if key in part)
    words = f"{words} {bounds}".strip()
    if "minItems" in part:
        least, most = part["minItems"], part.get("maxItems")
        span = f"{least}" if least == most else f"{least} to {most}" if most else f"{least} or more"
        words += f" of {span} entries"
    text = part.get("description", "")
    return f"{words} ({text})" if words and text else words or text


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    (Path(__file__).parent / "params.md").write_text(page())
