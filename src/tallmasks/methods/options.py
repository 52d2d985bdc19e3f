"""Options of merges and methods: the keyword-only parameters of the registered functions that have defaults.

params.yaml can set them. The type hint says which values are allowed: `Share` for a fraction, ``Literal["l1", "l2"]``
for a word. Options that are not at their defaults are part of the name, as in ``ties:keep=0.1``, in recipes and tables.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tallmasks.errors import TallmasksError, nearest

Value = int | float | str | bool


@dataclass(frozen=True)
class Between:
    """Inclusive bounds of a number."""

    low: float
    high: float


Share = Annotated[float, Between(0, 1)]
"""A fraction from 0 to 1."""

Fraction = Annotated[float, Between(1e-6, 1)]
"""A fraction from 1e-6 to 1."""


@dataclass(frozen=True)
class Option:
    """One option of a function. Its values have the type of ``default``; if there are ``words``, they are one of
    these, and strings must have them."""

    name: str
    default: Value
    bounds: Between | None = None
    words: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.default, str) and self.default not in self.words:
            raise ValueError(f"option {self.name}: write the allowed words as its type: Literal[{self.default!r}, ...]")

    @property
    def allowed(self) -> str:
        if self.words:
            return " or ".join(map(str, self.words))
        kind = {float: "a number", int: "a whole number", bool: "true or false"}[type(self.default)]
        return f"{kind} from {self.bounds.low:g} to {self.bounds.high:g}" if self.bounds else kind

    def checked(self, value: Any, whose: str) -> Value:
        """The value; integers become floats for a float option. Raises TallmasksError if it is not allowed."""
        value = value.item() if getattr(value, "shape", None) == () else value  # of NumPy or torch
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and isinstance(self.default, float):
            with suppress(OverflowError):
                value = float(value)
        if self.words:
            right = value in self.words and isinstance(value, type(self.default))
        elif isinstance(self.default, bool):
            right = isinstance(value, bool)
        else:
            low, high = (self.bounds.low, self.bounds.high) if self.bounds else (-math.inf, math.inf)
            right = number and abs(value) < math.inf and low <= value <= high and isinstance(value, type(self.default))
        if not right:
            near = nearest(str(value), list(map(str, self.words)))
            raise TallmasksError(f"{whose}: option {self.name}: found {value!r}, expected {self.allowed}{near}")
        return value


def options_of(*functions: Callable[..., Any] | None) -> dict[str, Option]:
    """The options of all the functions, by name. Raises ValueError if two have different defaults."""
    options: dict[str, Option] = {}
    for function in filter(None, functions):
        plain: Any = function if inspect.isroutine(function) else type(function).__call__
        hints = get_type_hints(plain, include_extras=True)
        for name, parameter in inspect.signature(plain).parameters.items():
            has_default = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is not parameter.empty
            if has_default:
                hint = hints.get(name)
                extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
                bounds = next((extra for extra in extras if isinstance(extra, Between)), None)
                words = get_args(hint) if get_origin(hint) is Literal else ()
                option = options.setdefault(name, Option(name, parameter.default, bounds, words))
                if option.default != parameter.default:
                    of = " and ".join(getattr(one, "__qualname__", str(one)) for one in functions if one)
                    raise ValueError(
                        f"option {name} of {of}: found the defaults {option.default} and {parameter.default}, expected"
                        " one default"
                    )
    return options


def options_for(function: Callable[..., Any], chosen: Mapping[str, Value]) -> dict[str, Value]:
    """The chosen options that belong to a function."""
    return {name: value for name, value in chosen.items() if name in options_of(function)}


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Splits ``name:option=value,...`` into the name and the options as strings. A name can be written like a title:
    T-Switch is t_switch."""
    name, _, rest = spec.partition(":")
    name = name.strip().lower().replace("-", "_").replace(" ", "_")
    pairs = (part.partition("=") for part in rest.split(",") if part)
    return name, {key: value for key, _, value in pairs}


def written(name: str, chosen: Mapping[str, Value]) -> str:
    """The inverse of `parse_spec`, with sorted options."""
    return f"{name}:{','.join(f'{key}={chosen[key]}' for key in sorted(chosen))}" if chosen else name


def chosen_from(texts: Mapping[str, Any], options: Mapping[str, Option], whose: str) -> dict[str, Value]:
    """The options that are not at their defaults. Raises TallmasksError for an unknown option or a wrong value."""
    chosen = {}
    for name, value in texts.items():
        if name not in options:
            known = ", ".join(options) or "none"
            raise TallmasksError(f"{whose}: there is no option {name!r}{nearest(name, options)}; its options: {known}")
        option = options[name]
        checked = option.checked(_typed(value, type(option.default)), whose)
        if checked != option.default:
            chosen[name] = checked
    return chosen


def _typed(value: Any, wanted: type) -> Any:
    """The value, converted to the wanted type if it is a string that allows it."""
    if isinstance(value, str):
        with suppress(ValueError, KeyError):
            return {"true": True, "false": False}[value.lower()] if wanted is bool else wanted(value)
    return value
