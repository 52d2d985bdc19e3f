"""One-line messages for pydantic errors: the key, what was found, what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tallmasks.errors import TallmasksError, nearest, short

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "{pattern}",
}
"""By pydantic's type of error. For the others, pydantic's own message is shown."""
_WORDS: dict[str, str] = {}
"""What texts that match a pattern are."""


class Section(BaseModel):
    """A model that refuses unknown keys and does not convert values."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if cls.model_config["extra"] == "forbid" and isinstance(value, Mapping):
            for key in value:
                if key not in cls.model_fields:
                    hint = nearest(str(key), cls.model_fields) or f"; expected {', '.join(cls.model_fields)}"
                    raise ValueError(f"there is no key {short(key)}{hint}")
        return value


def optional(description: str | None = None) -> Any:
    """A field that can be missing.  Without a description it keeps that of its type."""
    return Field(None, description=description) if description else Field(None)


def matching(pattern: str, description: str, min_length: int | None = None, max_length: int | None = None) -> Any:
    """A field of texts that match a pattern, which messages describe in words."""
    _WORDS[pattern] = description
    return Field(pattern=pattern, description=description, min_length=min_length, max_length=max_length)


def validated(value: Any, model: type[Model], file: object) -> Model:
    """Validate a value. Raises TallmasksError with the file and the key if the model does not allow it."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors = [(_keys(one["loc"], value), one) for one in error.errors(include_url=False)]
    # in a union, the deepest error is that of the intended member; at equal depth, a missing key or a ValueError is
    keys, first = max(errors, key=lambda each: (len(each[0]), each[1]["type"] in ("missing", "value_error")))
    if first["type"] == "missing":
        reason = f"{first['loc'][-1]} is missing and has no default; add it"
    elif first["type"] == "value_error":
        reason = str(first["ctx"]["error"])
    elif first["type"] in _EXPECTED:
        here = (one for others, one in errors if others == keys and one["type"] in _EXPECTED)
        expected = dict.fromkeys(_EXPECTED[one["type"]].format(**one.get("ctx", {})) for one in here)
        words = (_WORDS.get(one, one) for one in expected)
        reason = f"found {short(first['input'])}, expected {' or '.join(words)}"
    else:
        reason = f"found {short(first['input'])}; {first['msg']}"
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
