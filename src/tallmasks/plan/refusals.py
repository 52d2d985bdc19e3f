"""The errors of a pydantic model in one line: the key, what was found, what is expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tallmasks.store.errors import TallmasksError, nearest

Model = TypeVar("Model", bound=BaseModel)


class Section(BaseModel):
    """Keys with values: unlisted keys are refused, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def optional(description: str | None = None) -> Any:
    """A key that need not be there."""
    return Field(None, description=description) if description else Field(None)


_ORDER = {"extra_forbidden": 0, "missing": 1}


def check(value: Any, model: type[Model], file: object) -> Model:
    """A value as a model. Raises TallmasksError where the model does not allow it, with the file and the key."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise TallmasksError(f"{file}: {_refusal(error, value, model)}") from None


def _refusal(error: ValidationError, value: Any, model: type[BaseModel]) -> str:
    """The deepest error, since other choices of a union fail before it; an unknown key before its value."""
    placed = [(_keys(entry["loc"], value), entry) for entry in error.errors(include_url=False)]
    keys, first = min(placed, key=lambda each: (-len(each[0]), _ORDER.get(each[1]["type"], 2)))
    if first["type"] == "extra_forbidden":
        schema = model.model_json_schema()
        known = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", ())}
        reason = f"there is no key {shown(keys.pop())}{nearest(str(first['loc'][-1]), sorted(known))}"
    elif first["type"] == "missing":
        absent = [str(entry["loc"][-1]) for other, entry in placed if other == keys and entry["type"] == "missing"]
        reason = f"{', '.join(absent)}: not there, and there is no default; add it"
    elif first["type"] == "value_error":
        reason = str(first["ctx"]["error"])
    else:
        reason = f"{first['msg']}; found {shown(first['input'])}"
    return ": ".join(filter(None, [".".join(str(key)[:60] for key in keys), reason]))


def _keys(loc: tuple[int | str, ...], value: Any) -> list[int | str]:
    """The keys that lead to a place: `loc` without the names of a union's choices."""
    keys = []
    for step in loc:
        inside = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if inside or (isinstance(value, Mapping) and step in value):
            value = value[step]
            keys.append(step)
    return keys


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
