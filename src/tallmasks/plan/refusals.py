"""The errors of a pydantic model in one line: the key, what was found, what is expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tallmasks.store.errors import TallmasksError, nearest

Schema = Mapping[str, Any]
Model = TypeVar("Model", bound=BaseModel)
KEY = "[key]"
"""What pydantic appends to the place of a mapping's wrong key."""

_KINDS = {
    "integer": "a whole number",
    "number": "a finite number",
    "string": "a text",
    "array": "a list",
    "object": "keys with values",
    "boolean": "true or false",
    "null": "nothing",
}
_BOUNDS = (("from", "minimum"), ("above", "exclusiveMinimum"), ("to", "maximum"), ("below", "exclusiveMaximum"))


class Section(BaseModel):
    """Keys with values: unlisted keys are refused, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def optional(description: str | None = None) -> Any:
    """A key that need not be there."""
    return Field(None, description=description) if description else Field(None)


_ORDER = {"extra_forbidden": 0, "invalid_key": 0, "missing": 1}


def check(value: Any, model: type[Model], file: object) -> Model:
    """A value as a model. Raises TallmasksError where the model does not allow it, with the file and the key."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise TallmasksError(f"{file}: {_refusal(error, value, model.model_json_schema())}") from None


def _refusal(error: ValidationError, value: Any, schema: Schema) -> str:
    """The deepest error, since other choices of a union fail before it; an unknown key before its value."""
    placed = [(_keys(entry["loc"], value), entry) for entry in error.errors(include_url=False)]
    keys, first = min(placed, key=lambda each: (-len(each[0]), _ORDER.get(each[1]["type"], 2)))
    kind, loc, actual = first["type"], first["loc"], first["input"]
    wrong_name = KEY in loc or kind == "invalid_key"
    if wrong_name or kind == "extra_forbidden":  # the place is the mapping that has the key
        keys, loc = keys[:-1], loc[: loc.index(KEY) - 1] if KEY in loc else loc[:-1]
    where = "".join(f"{key}: " for key in [".".join(map(str, keys))] if key)
    part = _part(loc, value, schema)
    if wrong_name:
        expected = described(part.get("propertyNames", {"type": "string"}))
        return f"{where}found the name {shown(actual)}, expected {expected}"
    if kind == "extra_forbidden":
        key, known = first["loc"][-1], part["properties"]
        return f"{where}there is no key {shown(key)}{nearest(str(key), known)}; expected {', '.join(known)}"
    if kind == "missing":
        absent = [str(entry["loc"][-1]) for other, entry in placed if other == keys and entry["type"] == "missing"]
        return f"{where}{', '.join(absent)}: not there, and there is no default; add it"
    if kind == "value_error" and (reason := str(first["ctx"]["error"])):
        return f"{where}{reason}"
    return f"{where}found {shown(actual)}, expected {described(part)}{_unquoted(actual, part)}"


def _keys(loc: tuple[int | str, ...], value: Any) -> list[int | str]:
    """The keys that lead to a place: `loc` without the names of a union's choices."""
    keys = []
    for step in loc:
        if _has(value, step):
            value = value[step]
            keys.append(step)
    return keys


def _has(value: Any, step: int | str) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, Mapping) and step in value


def _part(loc: tuple[int | str, ...], value: Any, schema: Schema) -> Schema:
    """The part of a model's JSON schema for a place, with the descriptions on the way to it."""
    part = _resolved(schema, schema)
    for step in loc:
        choices = part.get("anyOf", part.get("oneOf", [part]))
        named = next((choice for choice in choices if choice.get("$ref", "").endswith(f"/{step}")), None)
        fitting = [inside for choice in choices if (inside := _inside(_resolved(choice, schema), step)) is not None]
        if named is not None:
            part = _resolved(named, schema)
        elif fitting and _has(value, step):
            part, value = _resolved(fitting[0], schema), value[step]
    return part


def _resolved(part: Schema, schema: Schema) -> Schema:
    """Replace a reference at the top; keys beside it count."""
    if "$ref" not in part:
        return part
    return {**schema["$defs"][part["$ref"].rpartition("/")[2]], **{key: part[key] for key in part if key != "$ref"}}


def _inside(part: Schema, step: int | str) -> Schema | None:
    """The part of the schema under a key or an index."""
    if isinstance(step, int):
        return part.get("items")
    values = [*part.get("patternProperties", {}).values(), part.get("additionalProperties")]
    inside = part.get("properties", {}).get(step, values[0])
    return inside if isinstance(inside, Mapping) else None


def described(part: Schema) -> str:
    """What a part of a JSON schema allows, in words."""
    if "enum" in part:
        words = f"one of {', '.join(map(str, part['enum']))}"
    elif "anyOf" in part or "oneOf" in part:
        words = " or ".join(dict.fromkeys(map(described, part.get("anyOf", part.get("oneOf")))))
    elif "const" in part:
        words = str(part["const"])
    else:
        words = _KINDS.get(part.get("type", "object" if "$ref" in part else ""), "")
    words = " ".join([words, *(f"{word} {part[key]}" for word, key in _BOUNDS if key in part)])
    if "minItems" in part:
        least, most = part["minItems"], part.get("maxItems")
        span = f"{least}" if least == most else f"{least} to {most}" if most else f"{least} or more"
        words += f" of {span} entries"
    text = part.get("description", "")
    return f"{words} ({text})" if words and text else words or text


def _unquoted(value: Any, part: Schema) -> str:
    """A hint where a text stands in the place of a number that it spells."""
    if not isinstance(value, str) or part.get("type") not in ("integer", "number"):
        return ""
    try:
        return "; write the number without quotation marks" if math.isfinite(float(value)) else ""
    except ValueError:
        return ""


def shown(value: Any) -> str:
    """A value in a message: short, and in one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 80:
        return "a whole number of more than 24 digits"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' * (value < 0)}.inf"
    if isinstance(value, Mapping):
        return "keys with values" if value else "an empty mapping"
    if isinstance(value, list) and any(isinstance(inside, (list, Mapping)) for inside in value):
        return f"a list of {len(value)}"
    text = f"[{', '.join(map(shown, value[:20]))}]" if isinstance(value, list) else repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."
