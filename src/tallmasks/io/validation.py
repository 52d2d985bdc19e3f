"""One-line messages for pydantic errors: the key, what was found, what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tallmasks.errors import TallmasksError, nearest, short

Model = TypeVar("Model", bound=BaseModel)


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
    # in a union, the deepest error is that of the intended member; at equal depth, a missing key is
    keys, first = max(errors, key=lambda each: (len(each[0]), each[1]["type"] == "missing"))
    if first["type"] == "extra_forbidden":
        schema = model.model_json_schema()
        inner = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", ())}
        key = keys.pop()
        allowed = inner if keys else set(model.model_fields)
        reason = f"there is no key {short(key)}{nearest(str(key), sorted(allowed - {key}))}"
    elif first["type"] == "missing":
        reason = f"{first['loc'][-1]} is missing and has no default; add it"
    elif first["type"] == "value_error":
        reason = str(first["ctx"]["error"])
    else:
        messages = (one["msg"].partition(" or instance of ")[0] for loc, one in errors if loc == keys)
        choices = dict.fromkeys(messages)  # of a union
        reason = f"{', or '.join(choices).replace('or Input should be', 'or')}; found {short(first['input'])}"
    raise TallmasksError(": ".join(filter(None, [str(file), ".".join(str(key)[:60] for key in keys), reason])))


def _keys(loc: tuple[int | str, ...], value: Any) -> list[int | str]:
    """The path of keys to an error: `loc` without the names of union members."""
    keys = []
    for step in loc:
        inside = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if inside or (isinstance(value, Mapping) and step in value):
            value = value[step]
            keys.append(step)
    return keys
