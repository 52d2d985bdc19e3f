"""One-line messages for pydantic errors: the key, what was found, what is expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tallmasks.errors import TallmasksError, nearest, short

Model = TypeVar("Model", bound=BaseModel)
Schema = Mapping[str, Any]

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
    """A model that refuses unknown keys and does not convert values."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def optional(description: str | None = None) -> Any:
    """A field that can be missing.  Without a description it keeps that of its type."""
    return Field(None, description=description) if description else Field(None)


def validated(value: Any, model: type[Model], file: object) -> Model:
    """Validate a value. Raises TallmasksError with the file and the key if the model does not allow it."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors = [(_keys(one["loc"], value), one) for one in error.errors(include_url=False)]
    # in a union, the deepest error is that of the intended member; at equal depth, a missing key or a ValueError is
    keys, first = max(errors, key=lambda each: (len(each[0]), each[1]["type"] in ("missing", "value_error")))
    schema = model.model_json_schema()
    if first["type"] == "extra_forbidden":
        key = keys.pop()
        members = (_members(part, schema.get("$defs", {})) for part in _parts(schema, first["loc"], keys))
        known = dict.fromkeys(name for part in chain(*members) for name in part.get("properties", ()))
        hint = nearest(str(key), known) or f"; expected {', '.join(known)}"
        reason = f"there is no key {short(key)}{hint}"
    elif first["type"] == "missing":
        reason = f"{first['loc'][-1]} is missing and has no default; add it"
    elif first["type"] == "value_error":
        reason = str(first["ctx"]["error"])
    elif first["type"] == "invalid_key" or (first["type"], first["loc"][-1]) == ("string_type", "[key]"):
        reason = f"found the key {short(keys.pop())}, expected a text"
    else:
        parts = _parts(schema, first["loc"], keys)
        expected = " or ".join(dict.fromkeys(filter(None, map(allowed, parts)))) or str(first["msg"])
        reason = f"found {short(first['input'])}, expected {expected}"
    raise TallmasksError(": ".join(filter(None, [str(file), ".".join(str(key)[:60] for key in keys), reason])))


def allowed(part: Schema) -> str:
    """What a part of a JSON schema allows, in words."""
    if "enum" in part:
        words = f"one of {', '.join(map(str, part['enum']))}"
    elif "anyOf" in part or "oneOf" in part:
        words = " or ".join(dict.fromkeys(map(allowed, part.get("anyOf", part.get("oneOf", ())))))
    elif "const" in part:
        words = str(part["const"])
    else:
        words = _KINDS.get(part.get("type", "object" if "$ref" in part else ""), "")
    bounds = " ".join(f"{word} {_number(part[key])}" for word, key in _BOUNDS if key in part)
    if bounds and not {"maximum", "exclusiveMaximum"} & part.keys():
        bounds += " on"
    words = f"{words} {bounds}".strip()
    if "minItems" in part:
        least, most = part["minItems"], part.get("maxItems")
        span = f"{least}" if least == most else f"{least} to {most}" if most else f"{least} or more"
        words += f" of {span} entries"
    text = part.get("description", "")
    return f"{words} ({text})" if words and text else words or text


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _keys(loc: tuple[int | str, ...], value: Any) -> list[int | str]:
    """The path of keys to an error: `loc` without the names of union members."""
    keys = []
    for step in loc:
        inside = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if inside or (isinstance(value, Mapping) and step in value):
            value = value[step]
            keys.append(step)
    return keys


def _parts(schema: Schema, loc: Sequence[int | str], keys: Sequence[int | str]) -> list[Schema]:
    """The parts of a JSON schema for a place in a value: several if pydantic could not choose a member of a union."""
    parts, definitions = [schema], schema.get("$defs", {})
    for key in keys:
        members = [member for part in parts for member in _members(part, definitions)]
        chosen = [member for member in members if member.get("title") in loc] or members
        if key == keys[-1] and loc[-1] == "[key]":
            return [member["propertyNames"] for member in chosen if "propertyNames" in member]
        parts = [inner for member in chosen if (inner := _inside(member, key)) is not None]
    return [member for part in parts for member in (_members(part, definitions) if "$ref" in part else [part])]


def _members(part: Schema, definitions: Mapping[str, Schema]) -> Iterator[Schema]:
    """A part itself, or the members of a union."""
    unions = [definitions[part["$ref"].rpartition("/")[2]]] if "$ref" in part else part.get("anyOf", part.get("oneOf"))
    if unions is None:
        yield part
    for member in unions or ():
        yield from _members(member, definitions)


def _inside(part: Schema, key: int | str) -> Schema | None:
    if isinstance(key, int):
        return part.get("items")
    values = [part.get("additionalProperties"), *part.get("patternProperties", {}).values()]
    return part.get("properties", {}).get(key) or next((value for value in values if isinstance(value, dict)), None)
